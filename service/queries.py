"""What the pages for people accept behind the question mark."""

from collections.abc import Iterable

import falcon


def refuse_unknown_parameters(req: falcon.Request, known: Iterable[str]) -> None:
    """Raise a 400 that names all query parameters beside `known`.

    A misspelt one would else be answered as if it had not been given.
    """
    wanted = list(known)
    unknown = sorted(set(req.params) - set(wanted))
    if unknown:
        raise falcon.HTTPBadRequest(
            description=f"unknown parameters: {', '.join(unknown)};"
            f" wanted some of {', '.join(wanted)}"
        )


def unknown_node(name: str) -> falcon.HTTPNotFound:
    """Return the 404 about a node that the cache does not have."""
    return falcon.HTTPNotFound(description=f"no node {name!r} in the cache")
