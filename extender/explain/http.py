"""``/explain``: the answers about one pod, node by node, with the reasons."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import falcon
import msgspec

from cluster.ledger.writer import SnapshotSource
from extender.explain.explain import explain
from extender.explain.page import ExplanationPage, PageQuery, build_page
from extender.explain.pod import (
    Admit,
    Subject,
    find_subject,
    namespaces_of,
    read_subjects,
)
from extender.explain.summary import QUOTA
from extender.explain.summary_text import render_page
from extender.tracking.last_answers import LastAnswers
from extender.verbs.fresh_snapshot import (
    REST_SECONDS,
    Deadline,
    DeadlineError,
    deadline_of,
)
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

# That have a pod of a name which is not where it was asked for.
MAX_NAMESPACES: Final = 5

MAX_OFFSET: Final = 1_000_000

POD_PARAMETERS: Final = ("namespace", "pod")

PAGE_PARAMETERS: Final = ("nodes", "node", "limit", "offset")

POST_PARAMETERS: Final = ("asIs",)

# Of an answer in text: whether all its pods fit, ``true`` or ``false``.
FITS_HEADER: Final = "Gpu-Extender-Fits"

# An explanation of a large cluster takes as long as several calls of the verbs.
MAX_EXPLANATIONS: Final = 2


class ExplainResource:
    """``GET /explain?namespace=&pod=``, and ``POST`` with a Pod as body.

    Query parameters of both, for rows beside the summary: ``nodes=true`` (all),
    ``node`` (this one alone), ``limit``, ``offset``. ``POST`` takes ``asIs=true``, too:
    the pod is not taken through the webhook's steps. Whoever accepts ``text/plain`` is
    answered as ``gpu-extender explain`` prints it, with `FITS_HEADER`.

    Parameters
    ----------
    admit : callable or None
        Has a pod reviewed that is yet to be created, holding nothing.
    begun : callable
        Returns how many requests of the extender's face were begun since the start,
        explanations among them.
    options : callable
        Returns what the settings say of the verbs at this moment.
    assumed : callable
        Returns the requests of pods assumed on each node that a snapshot, its first
        argument, does not show; without the pod whose UID is the second.
    age_seconds : callable
        Returns the time since the last contact with the cluster.
    """

    def __init__(  # noqa: PLR0913 - the last one is named
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        answered: LastAnswers,
        assumed: Callable[[Snapshot, str], Assumed],
        age_seconds: Callable[[], float | None],
        *,
        admit: Admit | None = None,
        begun: Callable[[], int] = lambda: 0,
    ) -> None:
        self._source = source
        self._options = options
        self._answered = answered
        self._assumed = assumed
        self._age_seconds = age_seconds
        self._admit = admit
        self._begun = begun
        self._lock = threading.Lock()
        self._active = 0
        self._own = 0

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
                f"{_elsewhere(snapshot, given['pod'])}"
            )
        self._answer(req, resp, lambda: [subject], snapshot, options)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Explain the pod in the body."""
        refuse_unknown_parameters(req, PAGE_PARAMETERS + POST_PARAMETERS)
        is_as_is = req.get_param_as_bool("asIs", default=False)
        try:
            tree = msgspec.json.decode(req.bounded_stream.read())
        except DECODE_ERRORS as error:
            raise WireError([Fault("body", decode_message(error))]) from error
        snapshot, options = self._source.current(), self._options()
        admit = None if is_as_is else self._admit
        read = partial(read_subjects, tree, options, admit)
        self._answer(req, resp, read, snapshot, options)

    def _answer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        read: Callable[[], Sequence[Subject]],
        snapshot: Snapshot,
        options: VerbOptions,
    ) -> None:
        """Answer with a page for each pod: an object for one, else a list."""
        query = _query_of(req)
        if query.node and query.node not in snapshot.nodes.column_of:
            raise unknown_node(query.node)
        self._enter()
        try:
            deadline = deadline_of(req.context).giving_way(self._rest())
            deadline.check()
            pages = [
                self._page(subject, snapshot, options, query, deadline)
                for subject in read()
            ]
        except DeadlineError as error:
            raise falcon.HTTPGatewayTimeout(
                description="the explanation was not done within"
                " extender.deadlineMilliseconds; ask again, or for fewer rows (limit)"
            ) from error
        finally:
            with self._lock:
                self._active -= 1
        _write(req, resp, pages, query.node)

    def _enter(self) -> None:
        """Begin an explanation; raise a 503 where as many are under way as may be."""
        with self._lock:
            self._own += 1
            if self._active >= MAX_EXPLANATIONS:
                raise falcon.HTTPServiceUnavailable(
                    description=f"{MAX_EXPLANATIONS} explanations are under way, which"
                    " is as many as are worked on at a time; ask again in a moment"
                )
            self._active += 1

    def _rest(self) -> Callable[[], None]:
        """Return what rests where a verb was called since it was last asked to."""
        seen = self._begun() - self._own

        def rest() -> None:
            nonlocal seen
            now = self._begun() - self._own
            if now != seen:
                seen = now
                time.sleep(REST_SECONDS)

        return rest

    def _page(
        self,
        subject: Subject,
        snapshot: Snapshot,
        options: VerbOptions,
        query: PageQuery,
        deadline: Deadline,
    ) -> ExplanationPage:
        """Return one pod's page."""
        uid = subject.pod_request.uid
        subject = replace(subject, not_modelled=(*subject.not_modelled, QUOTA))
        explanation = explain(
            subject, snapshot, options, self._assumed(snapshot, uid), deadline=deadline
        )
        last_answers = self._answered.of(uid)
        return build_page(
            explanation, query, last_answers, self._age_seconds(), deadline=deadline
        )


def _elsewhere(snapshot: Snapshot, name: str) -> str:
    """Return in which namespaces a pod of a name is, as the end of a sentence."""
    spaces = namespaces_of(snapshot, name)
    if not spaces:
        return ""
    more = len(spaces) - MAX_NAMESPACES
    told = [*spaces[:MAX_NAMESPACES], *([f"{more} more"] if more > 0 else [])]
    listed = " and ".join([", ".join(told[:-1]), told[-1]] if told[1:] else told)
    return f"; {listed} {'have' if told[1:] else 'has'} one of that name"


def _write(
    req: falcon.Request,
    resp: falcon.Response,
    pages: Sequence[ExplanationPage],
    node: str,
) -> None:
    """Answer with pages in the form that the caller wants: JSON unless it says text."""
    known = (falcon.MEDIA_JSON, falcon.MEDIA_TEXT)
    if req.client_prefers(known) != falcon.MEDIA_TEXT:
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(pages[0] if len(pages) == 1 else pages)
        return
    fits = all(page.summary is not None and page.summary.fits for page in pages)
    resp.set_header(FITS_HEADER, str(fits).lower())
    resp.content_type = falcon.MEDIA_TEXT
    resp.text = "\n".join(render_page(page, node) for page in pages)


def _query_of(req: falcon.Request) -> PageQuery:
    """Return the rows that a request asks for: none, unless it names some."""
    is_asked = req.get_param_as_bool("nodes", default=False) or any(
        req.has_param(name) for name in ("node", "limit", "offset")
    )
    limit = req.get_param_as_int(
        "limit", min_value=1, max_value=MAX_LIMIT, default=DEFAULT_LIMIT
    )
    return PageQuery(
        node=req.get_param("node", default=""),
        offset=req.get_param_as_int(
            "offset", min_value=0, max_value=MAX_OFFSET, default=0
        ),
        limit=limit if is_asked else 0,
    )
