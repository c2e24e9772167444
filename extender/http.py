"""Falcon resources of the extender, and the answers to their errors."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import falcon
import numpy as np

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from extender.tracking.assumed_pods import AssumedPods
from extender.tracking.count_mismatches import CountMismatches
from extender.tracking.last_answers import LastAnswers
from extender.verbs.call import VerbCall, VerbOptions, look_up
from extender.verbs.filter_answer import encode_filter
from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline, SnapshotWait
from extender.verbs.memo import FilterCall, FilterMemo
from extender.verbs.preempt import preempt_nodes
from extender.verbs.verbs import (
    count_claimed,
    filter_nodes,
    prioritize_nodes,
    shortlisted,
)
from extender.wire import answers
from extender.wire import filter as wire
from extender.wire.preempt import decode_preempt_args, encode_preempt_result
from scoring.candidates import PodRequest
from scoring.feasibility import Feasibility
from scoring.snapshot import Int64Array

logger = logging.getLogger(__name__)

FILTER: Final = "filter"

PRIORITIZE: Final = "prioritize"


class VerbObserver(Protocol):
    """Told of what the verbs did; implemented by the metrics."""

    def filtered(self, result: Feasibility, answered: int) -> None:
        """Count an answered filter call, and how many nodes it answered."""
        ...

    def passed_by_device_class(self, count: int) -> None:
        """Count nodes that passed because a DeviceClass carries their resource."""
        ...

    def prioritized(self, count: int) -> None:
        """Count an answered prioritize call for `count` candidates."""
        ...


class RefusalListener(Protocol):
    """Told of each filter call's answer; `Waker` is one."""

    def note(
        self, pod_request: PodRequest, generation: int, offered: int, *, is_empty: bool
    ) -> None:
        """Note whether all of the nodes that a call named were refused."""
        ...


@dataclass(frozen=True, slots=True)
class VerbParts:
    """What filter and prioritize work with.

    Attributes
    ----------
    source : SnapshotSource
    options : callable
        Returns what the settings say of the verbs at this moment.
    observer : VerbObserver
    memo : FilterMemo
    count_mismatches : CountMismatches
    answered : LastAnswers
    snapshot_wait : SnapshotWait or None
    listener : RefusalListener or None
    assumed_pods : AssumedPods
    """

    source: SnapshotSource
    options: Callable[[], VerbOptions]
    observer: VerbObserver
    memo: FilterMemo
    count_mismatches: CountMismatches
    answered: LastAnswers = field(default_factory=LastAnswers)
    snapshot_wait: SnapshotWait | None = None
    listener: RefusalListener | None = None
    assumed_pods: AssumedPods = field(
        default_factory=lambda: AssumedPods(is_counting=False)
    )


def deadline_of(req: falcon.Request) -> Deadline:
    """Return until when the request is worked on."""
    deadline: Deadline = getattr(req.context, "deadline", NO_DEADLINE)
    return deadline


class FilterResource:
    """``POST /scheduler/filter``: which candidates can hold the pod."""

    def __init__(self, parts: VerbParts) -> None:
        self._parts = parts

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, judge on one snapshot, encode."""
        parts, deadline = self._parts, deadline_of(req)
        options = parts.options()
        body = req.bounded_stream.read()
        args = wire.decode_args(body)
        deadline.check()
        verb_call, result = self._judge(args, options)
        deadline.check()
        parts.assumed_pods.forget(verb_call.pod_request.uid)
        under_way = parts.assumed_pods.under_way(
            verb_call.snapshot, verb_call.pod_request.uid
        )
        places = shortlisted(verb_call, result, options, under_way)
        answer = encode_filter(body, args, verb_call, result, places)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = answer.data
        if answer.expected_prioritize_body is not None:
            parts.memo.keep(
                FilterCall(
                    answer.expected_prioritize_body, options, verb_call, answer.places
                )
            )
        if len(answer.places) == 1:  # kube-scheduler asks for no priorities then
            note_assumed(parts.assumed_pods, verb_call, int(answer.places[0]))
        parts.observer.filtered(result, len(answer.places))
        claimed = count_claimed(verb_call, result, options)
        if claimed:
            parts.observer.passed_by_device_class(claimed)
        parts.count_mismatches.note(
            verb_call.names, verb_call.pod_request.request, result
        )
        parts.answered.note_filter(
            verb_call.pod_request.uid,
            verb_call.snapshot.generation,
            result.verdicts,
            len(answer.places),
        )
        if parts.listener is not None:
            parts.listener.note(
                verb_call.pod_request,
                verb_call.snapshot.generation,
                len(verb_call.names),
                is_empty=not len(answer.places),
            )
        log_call(FILTER, verb_call.pod_request.uid, len(verb_call.names), result)

    def _judge(
        self, args: wire.ExtenderArgs, options: VerbOptions
    ) -> tuple[VerbCall, Feasibility]:
        """Judge on the present snapshot, and perhaps once more on the next one.

        Where the answer would be empty or a name is unknown, that one is waited for. A
        request with objects may be about nodes that no snapshot will ever have.
        """
        parts = self._parts
        verb_call = look_up(args, parts.source.current(), options)
        result = filter_nodes(verb_call, options)
        if parts.snapshot_wait is None or args.nodes is not None or not verb_call.names:
            return verb_call, result
        is_doubtful = verb_call.has_unknown or not result.feasible.any()
        if verb_call.pod_request.request and is_doubtful:
            newer = parts.snapshot_wait.wait_for_newer(verb_call.snapshot)
            if newer is not None:
                verb_call = look_up(args, newer, options)
                result = filter_nodes(verb_call, options)
        return verb_call, result


class PrioritizeResource:
    """``POST /scheduler/prioritize``: a priority for each candidate."""

    def __init__(self, parts: VerbParts) -> None:
        self._parts = parts

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, score on one snapshot, encode."""
        parts, deadline = self._parts, deadline_of(req)
        options = parts.options()
        body = req.bounded_stream.read()
        call = parts.memo.recall(body, options)
        if call is None:
            verb_call = look_up(wire.decode_args(body), parts.source.current(), options)
            places = None
        else:
            verb_call, places = call.verb_call, call.places
        deadline.check()
        under_way = parts.assumed_pods.under_way(
            verb_call.snapshot, verb_call.pod_request.uid
        )
        priorities = prioritize_nodes(verb_call, options, places, under_way)
        deadline.check()
        literals = verb_call.literals(places)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = answers.encode_priorities(literals, priorities)
        best = best_alone(priorities)
        if best is not None:
            place = best if places is None else int(places[best])
            note_assumed(parts.assumed_pods, verb_call, place)
        parts.observer.prioritized(len(priorities))
        parts.answered.note_prioritize(
            verb_call.pod_request.uid,
            verb_call.snapshot.generation,
            literals,
            priorities,
        )
        log_call(PRIORITIZE, verb_call.pod_request.uid, len(priorities), None)


def best_alone(priorities: Int64Array) -> int | None:
    """Return the place of the highest priority, None where several share it.

    >>> best_alone(np.array([3, 10, 9]))
    1
    >>> best_alone(np.array([10, 10])) is None
    True
    """
    if not len(priorities):
        return None
    best = int(priorities.argmax())
    count = np.count_nonzero(priorities == priorities[best])
    return best if count == 1 else None


def note_assumed(assumed_pods: AssumedPods, verb_call: VerbCall, place: int) -> None:
    """Note that the answer leaves the pod one best node."""
    pod_request = verb_call.pod_request
    assumed_pods.note(pod_request.uid, verb_call.names[place], pod_request.request)


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
            fields["disagreements"] = result.count_mismatches
        logger.debug("call answered", extra={"fields": fields})


class MalformedHandler:
    """Falcon's handler of a `WireError`.

    Parameters
    ----------
    answered : LastAnswers
        Told of pods that cannot be judged.
    """

    def __init__(self, answered: LastAnswers) -> None:
        self._answered = answered

    def __call__(
        self,
        req: falcon.Request,
        _resp: falcon.Response,
        error: wire.WireError,
        _params: dict[str, object],
    ) -> None:
        """Turn the error into 400 Bad Request."""
        if error.pod_uid:
            verb = req.path.rpartition("/")[2]
            self._answered.note_fault(error.pod_uid, verb, str(error))
        raise falcon.HTTPBadRequest(description=str(error)) from error


def reject_unsynced(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: NotSyncedError,
    _params: dict[str, object],
) -> None:
    """Turn a `NotSyncedError` into 503: neither "all fit" nor "none fits"."""
    raise falcon.HTTPServiceUnavailable(description=str(error)) from error


class PreemptObserver(Protocol):
    """Told of what the verb did; implemented by the metrics."""

    def preempted(self, result: Feasibility) -> None:
        """Count an answered preempt call."""
        ...


class PreemptResource:
    """``POST /scheduler/preempt``: on which candidates eviction would help."""

    def __init__(
        self,
        source: SnapshotSource,
        options: Callable[[], VerbOptions],
        observer: PreemptObserver,
    ) -> None:
        self._source = source
        self._options = options
        self._observer = observer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Decode, judge on one snapshot, encode."""
        deadline = deadline_of(req)
        args = decode_preempt_args(req.bounded_stream.read())
        deadline.check()
        preemption = preempt_nodes(args, self._source.current(), self._options())
        deadline.check()
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode_preempt_result(preemption.kept)
        self._observer.preempted(preemption.result)
        if logger.isEnabledFor(logging.DEBUG):
            fields = {
                "verb": "preempt",
                "pod_uid": args.pod.metadata.uid,
                "candidates": len(args.victims),
                "feasible": len(preemption.kept),
                "disagreements": preemption.result.count_mismatches,
            }
            logger.debug("call answered", extra={"fields": fields})
