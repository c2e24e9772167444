"""Falcon resources of the extender, and the answers to their errors.

A resource decodes a call, has it judged on one snapshot and encodes the answer; then it
hands one outcome to its listeners, one after the other.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import falcon

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from extender.tracking.assumed_pods import AssumedPods
from extender.verbs.call import FilterOutcome, PrioritizeOutcome, VerbCall
from extender.verbs.fresh_snapshot import SnapshotWait, deadline_of
from extender.verbs.lookup import look_up
from extender.verbs.options import VerbOptions
from extender.verbs.preempt import Preemption, preempt_nodes
from extender.verbs.reuse import FilterMemo
from extender.verbs.verbs import (
    count_claimed,
    filter_nodes,
    prioritize_nodes,
    shortlisted,
)
from extender.wire import answers
from extender.wire import filter as wire
from extender.wire.fields import TooLargeError
from extender.wire.preempt import decode_preempt_args, encode_preempt_result
from scoring.feasibility import Feasibility

logger = logging.getLogger(__name__)

FILTER: Final = "filter"

PRIORITIZE: Final = "prioritize"

PREEMPT: Final = "preempt"

FilterListener: TypeAlias = Callable[[FilterOutcome], None]

PrioritizeListener: TypeAlias = Callable[[PrioritizeOutcome], None]

PreemptListener: TypeAlias = Callable[[Preemption], None]


class FilterResource:
    """``POST /scheduler/filter``: the candidates that can hold the pod."""

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        snapshot_wait: SnapshotWait | None,
        assumed: AssumedPods,
        listeners: Iterable[FilterListener],
    ) -> None:
        self._source = source
        self._options = options
        self._snapshot_wait = snapshot_wait
        self._assumed = assumed
        self._listeners = (*listeners, log_filter)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, judge on one snapshot, encode, and tell the listeners."""
        deadline, options = deadline_of(req.context), self._options()
        body = req.bounded_stream.read()
        args = wire.decode_args(body, options.max_nodes)
        deadline.check()
        verb_call, result = self._judge(args, options)
        deadline.check()
        uid = verb_call.pod_request.uid
        self._assumed.forget(uid)
        assumed = self._assumed.by_node(verb_call.snapshot, uid)
        shortlist = shortlisted(verb_call, result, options, assumed)
        answer = answers.encode_filter(
            body, args, verb_call.names, result.verdicts, shortlist
        )
        resp.content_type = falcon.MEDIA_JSON
        resp.data = answer.data
        claimed_count = count_claimed(verb_call, result, options)
        outcome = FilterOutcome(verb_call, options, result, answer, claimed_count)
        for tell in self._listeners:
            tell(outcome)

    def _judge(
        self, args: wire.ExtenderArgs, options: VerbOptions
    ) -> tuple[VerbCall, Feasibility]:
        """Judge on the present snapshot, and perhaps once more on the next one.

        Where the answer would be empty or a name is unknown, that one is waited for. A
        request with objects may be about nodes that no snapshot will ever have.
        """
        verb_call = look_up(args, self._source.current(), options)
        result = filter_nodes(verb_call, options)
        if self._snapshot_wait is None or args.nodes is not None or not verb_call.names:
            return verb_call, result
        is_doubtful = verb_call.has_unknown or not result.feasible.any()
        if verb_call.pod_request.request and is_doubtful:
            newer = self._snapshot_wait.wait_for_newer(verb_call.snapshot)
            if newer is not None:
                verb_call = look_up(args, newer, options)
                result = filter_nodes(verb_call, options)
        return verb_call, result


class PrioritizeResource:
    """``POST /scheduler/prioritize``: a priority for each candidate."""

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        memo: FilterMemo,
        assumed: AssumedPods,
        listeners: Iterable[PrioritizeListener],
    ) -> None:
        self._source = source
        self._options = options
        self._memo = memo
        self._assumed = assumed
        self._listeners = (*listeners, log_prioritize)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode or recall, score on one snapshot, encode, and tell the listeners."""
        deadline, options = deadline_of(req.context), self._options()
        body = req.bounded_stream.read()
        call = self._memo.recall(body, options)
        if call is None:
            args = wire.decode_args(body, options.max_nodes)
            verb_call = look_up(args, self._source.current(), options)
            indexes = None
        else:
            verb_call, indexes = call.verb_call, call.indexes
        deadline.check()
        uid = verb_call.pod_request.uid
        assumed = self._assumed.by_node(verb_call.snapshot, uid)
        priorities = prioritize_nodes(verb_call, options, indexes, assumed)
        deadline.check()
        literals = verb_call.literals(indexes)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = answers.encode_priorities(literals, priorities)
        outcome = PrioritizeOutcome(verb_call, indexes, literals, priorities)
        for tell in self._listeners:
            tell(outcome)


class PreemptResource:
    """``POST /scheduler/preempt``: the candidates on which eviction would help."""

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        listeners: Iterable[PreemptListener],
    ) -> None:
        self._source = source
        self._options = options
        self._listeners = tuple(listeners)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, judge on one snapshot, encode, and tell the listeners."""
        deadline, options = deadline_of(req.context), self._options()
        args = decode_preempt_args(req.bounded_stream.read(), options.max_nodes)
        deadline.check()
        preemption = preempt_nodes(args, self._source.current(), options)
        deadline.check()
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode_preempt_result(preemption.kept)
        for tell in self._listeners:
            tell(preemption)
        if logger.isEnabledFor(logging.DEBUG):
            _log_call(
                PREEMPT,
                args.pod.metadata.uid,
                candidates=len(args.victims),
                feasible=len(preemption.kept),
                disagreements=preemption.result.count_mismatches,
            )


def log_filter(outcome: FilterOutcome) -> None:
    """Log an answered filter call at debug level."""
    if logger.isEnabledFor(logging.DEBUG):
        _log_call(
            FILTER,
            outcome.verb_call.pod_request.uid,
            candidates=len(outcome.verb_call.names),
            feasible=int(outcome.result.feasible.sum()),
            disagreements=outcome.result.count_mismatches,
        )


def log_prioritize(outcome: PrioritizeOutcome) -> None:
    """Log an answered prioritize call at debug level."""
    if logger.isEnabledFor(logging.DEBUG):
        uid = outcome.verb_call.pod_request.uid
        _log_call(PRIORITIZE, uid, candidates=len(outcome.priorities))


def _log_call(verb: str, pod_uid: str, **counts: int) -> None:
    fields = {"verb": verb, "pod_uid": pod_uid, **counts}
    logger.debug("call answered", extra={"fields": fields})


class MalformedHandler:
    """Falcon's handler of a `WireError`.

    Parameters
    ----------
    note_fault : callable
        Told of UID, verb and fault of each pod that cannot be judged.
    """

    def __init__(self, note_fault: Callable[[str, str, str], None]) -> None:
        self._note_fault = note_fault

    def __call__(
        self,
        req: falcon.Request,
        _resp: falcon.Response,
        error: wire.WireError,
        _params: dict[str, object],
    ) -> None:
        """Turn the error into 400 Bad Request."""
        # Falcon's own frames refer to their error in a circle: the body, which the
        # frames of ours hold, would stay until the garbage collector comes.
        error.__traceback__ = None
        if error.pod_uid:
            verb = req.path.rpartition("/")[2]
            self._note_fault(error.pod_uid, verb, str(error))
        raise falcon.HTTPBadRequest(description=str(error)) from error


def reject_too_large(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: TooLargeError,
    _params: dict[str, object],
) -> None:
    """Turn a `TooLargeError` into 413."""
    error.__traceback__ = None  # as for a `WireError`
    raise falcon.HTTPContentTooLarge(description=str(error)) from error


def reject_unsynced(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: NotSyncedError,
    _params: dict[str, object],
) -> None:
    """Turn a `NotSyncedError` into 503: neither "all fit" nor "none fits"."""
    raise falcon.HTTPServiceUnavailable(description=str(error)) from error
