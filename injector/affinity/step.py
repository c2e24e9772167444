"""GPU requirements of a pod, written into it as required node affinity."""

import threading
from dataclasses import dataclass, field, replace
from typing import Final

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.admitted_pod import AdmittedPod
from injector.affinity.terms import (
    NodeSelectorTerms,
    add_node_selector_terms,
    build_node_selector_terms,
)
from scoring.bounded import BoundedDict
from scoring.gpu.affinity import (
    GpuCriteria,
    LabelTerm,
    RequestedGpus,
    refusing_terms,
    required_terms,
)
from scoring.gpu.node_gpus import GpuLabelRules
from scoring.gpu.node_labels import GpuLabels, LabelledGpus
from scoring.gpu.requirements import GpuRequirements, GpuRequirementsError
from scoring.protocols import NodeFacts
from scoring.resources import Remembered, Request, ResourceScope

_MAX_KNOWN: Final = 1024

_MAX_KEPT_LENGTH: Final = 1024  # characters

TOO_MANY_TERMS: Final = (
    "too many terms of required node affinity: GPU type and memory were not added; use"
    " fewer terms"
)


@dataclass(frozen=True, slots=True)
class _NodeLabels:
    """The labels of the nodes as they were, and what follows from them.

    Attributes
    ----------
    labels : GpuLabels
        Those that are read, and by which rules.
    facts : tuple of NodeFacts
        Those of the snapshot; another tuple as soon as a node has changed.
    kind_of : dict
        node name -> its facts and kind
    terms : BoundedDict
        criteria -> what labels must be for it
    """

    labels: GpuLabels
    facts: tuple[NodeFacts, ...] = ()
    kinds: tuple[LabelledGpus, ...] = ()
    kind_of: dict[str, tuple[NodeFacts, LabelledGpus]] = field(default_factory=dict)
    terms: BoundedDict[GpuCriteria, NodeSelectorTerms] = field(
        default_factory=lambda: BoundedDict(_MAX_KNOWN)
    )

    def terms_for(self, criteria: GpuCriteria) -> NodeSelectorTerms:
        """Return what the labels of a node must be for its GPUs to meet `criteria`."""
        known = self.terms.get(criteria)
        if known is None:
            known = build_node_selector_terms(self._alternatives(criteria))
            if isinstance(criteria, RequestedGpus) and not _is_brief(criteria.request):
                return known
            self.terms.keep(criteria, known)
        return known

    def _alternatives(self, criteria: GpuCriteria) -> tuple[LabelTerm, ...]:
        if isinstance(criteria, RequestedGpus):
            return required_terms(self.labels.rules, criteria, self.kinds)
        return refusing_terms(self.labels.rules, criteria, self.kinds)

    def with_nodes(self, facts: tuple[NodeFacts, ...]) -> "_NodeLabels":
        """Return the same for other nodes."""
        kind_of = {}
        for node in facts:
            known = self.kind_of.get(node.name)
            if known is None or known[0] is not node:
                known = node, self.labels.kind_of(node)
            kind_of[node.name] = known
        kinds = tuple(dict.fromkeys(kind for _, kind in kind_of.values()))
        # What was computed for the same kinds still holds.
        seen = _NodeLabels(self.labels, facts, kinds, kind_of)
        return replace(seen, terms=self.terms) if kinds == self.kinds else seen


class KnownGpus:
    """Labels of the nodes and the GPUs behind them; any thread may call it.

    Parameters
    ----------
    source : SnapshotSource
        While it has not been read, no node is known.
    """

    def __init__(self, source: SnapshotSource, rules: GpuLabelRules) -> None:
        self._source = source
        # Held for one comparison, so that nodes seen by old rules replace no new ones.
        self._lock = threading.Lock()
        # PERF: pods come more often than labels change, and want the same GPUs.
        self._seen: _NodeLabels
        self.use(rules)

    def use(self, rules: GpuLabelRules) -> None:
        """Read labels by other rules from now on."""
        with self._lock:
            self._seen = _NodeLabels(GpuLabels(rules))

    def require(self, pod: AdmittedPod, criteria: GpuCriteria) -> tuple[str, ...]:
        """Require of the node of `pod` what `criteria` says, as far as labels tell it.

        Returns a warning if that cannot be written. A pod that has a node already is
        left alone: the kubelet checks affinity, too.
        """
        if pod.decoded.spec.node_name:
            return ()
        terms = self._look().terms_for(criteria)
        is_written = add_node_selector_terms(pod.edit()["spec"], terms)
        return () if is_written else (TOO_MANY_TERMS,)

    def _look(self) -> _NodeLabels:
        """Return the labels of the nodes as they are now."""
        try:
            facts = self._source.current().facts
        except NotSyncedError:
            facts = ()
        seen = self._seen
        if facts is seen.facts:
            return seen
        newer = seen.with_nodes(facts)
        with self._lock:
            if self._seen is seen:
                self._seen = newer
        return newer


def _is_brief(request: Request) -> bool:
    """Whether to remember `request`: nobody has checked yet what it names."""
    return sum(len(name) for name, _ in request) <= _MAX_KEPT_LENGTH


class AffinityStep:
    """Adds hard GPU requirements to each term of a pod's required node affinity.

    A pod whose requirements cannot be read stays as it is, and so does a term that
    implies what is wanted, as after an earlier review.
    """

    def __init__(
        self, known: KnownGpus, gpu_reader: GpuRequirementsReader, scope: ResourceScope
    ) -> None:
        self._known = known
        self._gpu_reader = gpu_reader
        self._is_managed = Remembered(scope.is_managed).__getitem__

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Write the affinity; return a warning if it cannot be written."""
        gpu_requirements = self._gpu_requirements_of(pod)
        if gpu_requirements is None:
            return ()
        request = tuple((name, 1) for name, _ in pod.request if self._is_managed(name))
        if not request:
            return ()
        criteria = RequestedGpus(gpu_requirements, request)
        return self._known.require(pod, criteria)

    def _gpu_requirements_of(self, pod: AdmittedPod) -> GpuRequirements | None:
        """Return the requirements, None where labels can answer none of them."""
        try:
            gpu_requirements = self._gpu_reader.read(pod.annotations)
        except GpuRequirementsError:
            return None  # `GpuTypeCheck` tells the user
        is_hard = (
            gpu_requirements.types
            or gpu_requirements.excluded
            or gpu_requirements.min_memory
        )
        return gpu_requirements if is_hard else None
