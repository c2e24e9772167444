"""``/explain``: the answers about one pod, node by node, with the reasons."""

from collections.abc import Callable, Iterable
from typing import Final

import falcon
import msgspec

from cluster.ledger.writer import SnapshotSource
from extender.explain.explain import explain
from extender.explain.page import PageQuery, build_page
from extender.explain.pod import Subject, find_subject, read_subject
from extender.tracking.last_answers import LastAnswers
from extender.verbs.fresh_snapshot import deadline_of
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import Assumed
from extender.wire.fields import DECODE_ERRORS, decode_message
from extender.wire.filter import WireError
from scoring.faults import Fault
from scoring.snapshot import Snapshot


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


DEFAULT_LIMIT: Final = 500

# Writing a row takes about 0.1 ms, in which no verb computes.
MAX_LIMIT: Final = 1000

MAX_OFFSET: Final = 1_000_000

POD_PARAMETERS: Final = ("namespace", "pod")

PAGE_PARAMETERS: Final = ("node", "limit", "offset")


class ExplainResource:
    """``GET /explain?namespace=&pod=``, and ``POST`` with a Pod as body.

    Query parameters of both: ``node`` (this one alone), ``limit``, ``offset``.

    Parameters
    ----------
    options : callable
        Returns what the settings say of the verbs at this moment.
    assumed : callable
        Returns the requests of pods assumed on each node that a snapshot, its first
        argument, does not show; without the pod whose UID is the second.
    age_seconds : callable
        Returns the time since the last contact with the cluster.
    """

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        answered: LastAnswers,
        assumed: Callable[[Snapshot, str], Assumed],
        age_seconds: Callable[[], float | None],
    ) -> None:
        self._source = source
        self._options = options
        self._answered = answered
        self._assumed = assumed
        self._age_seconds = age_seconds

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Explain a pod that the cache knows."""
        refuse_unknown_parameters(req, POD_PARAMETERS + PAGE_PARAMETERS)
        given = {key: req.get_param(key) or "" for key in POD_PARAMETERS}
        missing = [key for key, value in given.items() if not value]
        if missing:
            raise falcon.HTTPBadRequest(
                description=f"wanted the parameters namespace and pod,"
                f" got no {' and no '.join(missing)}"
            )
        snapshot, options = self._source.current(), self._options()
        subject = find_subject(snapshot, given["namespace"], given["pod"], options)
        if subject is None:
            raise falcon.HTTPNotFound(
                description=f"no pod {given['namespace']}/{given['pod']} among the"
                " pending and bound pods that ask for a managed resource"
            )
        self._answer(req, resp, subject, snapshot, options)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Explain the pod in the body."""
        refuse_unknown_parameters(req, PAGE_PARAMETERS)
        try:
            tree = msgspec.json.decode(req.bounded_stream.read())
        except DECODE_ERRORS as error:
            raise WireError([Fault("body", decode_message(error))]) from error
        snapshot, options = self._source.current(), self._options()
        subject = read_subject(tree, options)
        self._answer(req, resp, subject, snapshot, options)

    def _answer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        subject: Subject,
        snapshot: Snapshot,
        options: VerbOptions,
    ) -> None:
        """Answer with one page of the explanation."""
        query = PageQuery(
            node=req.get_param("node", default=""),
            offset=req.get_param_as_int(
                "offset", min_value=0, max_value=MAX_OFFSET, default=0
            ),
            limit=req.get_param_as_int(
                "limit", min_value=1, max_value=MAX_LIMIT, default=DEFAULT_LIMIT
            ),
        )
        if query.node and query.node not in snapshot.nodes.column_of:
            raise unknown_node(query.node)
        assumed = self._assumed(snapshot, subject.pod_request.uid)
        deadline = deadline_of(req.context)
        explanation = explain(subject, snapshot, options, assumed, deadline=deadline)
        last_answers = self._answered.of(subject.pod_request.uid)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            build_page(
                explanation, query, last_answers, self._age_seconds(), deadline=deadline
            )
        )
