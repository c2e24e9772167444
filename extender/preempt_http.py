"""Falcon resource of the preempt verb."""

import logging
from collections.abc import Callable
from typing import Protocol

import falcon

from cluster.cache import SnapshotSource
from extender.http import deadline_of
from extender.preempt import preempt_nodes
from extender.preempt_wire import decode_preempt_args, encode_preempt_result
from extender.question import VerbOptions
from scoring.feasibility import Feasibility

logger = logging.getLogger(__name__)


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
                "disagreements": preemption.result.disagreements,
            }
            logger.debug("call answered", extra={"fields": fields})
