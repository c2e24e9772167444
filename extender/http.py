"""Falcon resources of the extender, and what its errors answer."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

import falcon

from cluster.cache import NotSyncedError, SnapshotSource
from extender import answers, wire
from extender.disagreements import Disagreements
from extender.memo import FilterCall, Memo
from extender.verbs import VerbOptions, filter_nodes, pose, prioritize_nodes
from scoring.feasibility import Feasibility

logger = logging.getLogger(__name__)

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"


class VerbObserver(Protocol):
    """Told of what the verbs did; implemented by the metrics."""

    def filtered(self, result: Feasibility) -> None:
        """Count an answered filter call."""
        ...

    def prioritized(self, count: int) -> None:
        """Count an answered prioritize call for `count` candidates."""
        ...


class FilterResource:
    """``POST /scheduler/filter``: which candidates can hold the pod."""

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        observer: VerbObserver,
        memo: Memo,
        disagreements: Disagreements,
    ) -> None:
        self._source = source
        self._options = options
        self._observer = observer
        self._memo = memo
        self._disagreements = disagreements

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, judge on one snapshot, encode."""
        options = self._options()
        body = req.bounded_stream.read()
        args = wire.decode_args(body)
        snapshot = self._source.current()
        question = pose(args, snapshot, options)
        result = filter_nodes(question, options)
        nodes = None if args.nodes is None else list(args.nodes.values())
        answer = answers.encode_filter_result(question.quoted, result.verdicts, nodes)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = answer
        if nodes is None:  # a body of whole nodes is too large to keep
            self._memo.keep(
                FilterCall(body, answer, snapshot, options, question, result)
            )
        self._observer.filtered(result)
        self._disagreements.note(question.names, result.disagreeing)
        log_call(FILTER, question.ask.uid, len(question.names), result)


class PrioritizeResource:
    """``POST /scheduler/prioritize``: a priority for each candidate."""

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        observer: VerbObserver,
        memo: Memo,
    ) -> None:
        self._source = source
        self._options = options
        self._observer = observer
        self._memo = memo

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, score on one snapshot, encode."""
        options = self._options()
        body = req.bounded_stream.read()
        call = self._memo.recall(body, options)
        if call is None:
            question = pose(wire.decode_args(body), self._source.current(), options)
            quoted, priorities = question.quoted, prioritize_nodes(question, options)
        else:
            question = call.question
            places = call.feasible_places()
            quoted = question.quoted.take(places)
            priorities = prioritize_nodes(question, options, places)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = answers.encode_priorities(quoted, priorities)
        self._observer.prioritized(len(priorities))
        log_call(PRIORITIZE, question.ask.uid, len(priorities), None)


def log_call(
    verb: str, pod_uid: str, candidates: int, result: Feasibility | None
) -> None:
    """Log one answered call at debug level."""
    if logger.isEnabledFor(logging.DEBUG):
        fields: dict[str, object] = {
            "verb": verb,
            "pod_uid": pod_uid,
            "candidates": candidates,
        }
        if result is not None:
            fields["feasible"] = int(result.feasible.sum())
            fields["disagreements"] = result.disagreements
        logger.debug("call answered", extra={"fields": fields})


def reject_malformed(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: wire.WireError,
    _params: dict[str, object],
) -> None:
    """Turn a `WireError` into 400 Bad Request."""
    raise falcon.HTTPBadRequest(description=str(error)) from error


def reject_unsynced(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: NotSyncedError,
    _params: dict[str, object],
) -> None:
    """Turn a `NotSyncedError` into 503: neither "all fit" nor "none fits"."""
    raise falcon.HTTPServiceUnavailable(description=str(error)) from error
