"""`VerbOptions`: the settings by which the verbs judge and score."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.decode.records import RecordBuilder
from extender.verbs.reuse import Arrays, SharedResults
from scoring.candidates import Candidates, LabelKeys, PodRequest
from scoring.feasibility import counted_as_full, judge
from scoring.normalization import Scale
from scoring.profiles import PACKING_TERMS, PROFILES, score_terms
from scoring.snapshot import Float64Array
from scoring.terms import ScoreOptions, type_tiers


@dataclass(frozen=True, slots=True)
class VerbOptions:
    """The settings by which the verbs judge and score, and results computed by them.

    Attributes
    ----------
    builder : RecordBuilder
        Reads pods and template nodes as the cache does.
    is_enforcing : bool
        ``counts: enforce``; otherwise kube-scheduler's own count is trusted.
    is_counting_alone : bool
        Whether that is set for a kube-scheduler that ignores managed resources, and not
        just the default of a cluster from a file.
    profile : str
        A key of `scoring.profiles.PROFILES`.
    weights : mapping
        term name -> weight in hundredths
    scale : Scale
        How totals become priorities.
    shortlist : int
        How many feasible nodes a filter call answers at most; 0 for all.
    is_type_order_strict : bool
        Whether a node of an earlier type in the pod's list precedes all of later ones.
    scheduler_names : frozenset of str
        The schedulers that ask us; empty stands for the default one, as a member.
    max_nodes : int
        So many nodes at most may be named by a call.
    shared_results : SharedResults
        Of all nodes, computed with these options.
    """

    builder: RecordBuilder
    label_keys: LabelKeys
    is_enforcing: bool
    profile: str
    weights: Mapping[str, int]
    score_options: ScoreOptions
    scale: Scale
    shortlist: int = 0
    is_type_order_strict: bool = True
    max_nodes: int = 20_000
    is_counting_alone: bool = False
    scheduler_names: frozenset[str] = frozenset()
    shared_results: SharedResults = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "shared_results", SharedResults(self.assess, self.label_keys)
        )

    @property
    def reads_cpu(self) -> bool:
        """Whether scores go by the pod's cpu, and pods without GPUs are scored."""
        return any(self.weights.get(name) for name in PACKING_TERMS)

    def scores(self, pod_request: PodRequest) -> bool:
        """Whether the pod's nodes are told apart at all."""
        return bool(pod_request.request) or self.reads_cpu

    def assess(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        """Return the arrays of `judge`, then those of `total_up`, shape (C,).

        PERF: together, since nearly every pod that is judged is scored a moment later,
        and most of what a few changed nodes cost is to begin; ``bench.scheduler``
        """
        return *self.judge(candidates, pod_request), *self.total_up(
            candidates, pod_request
        )

    def judge(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        """Return verdicts, and where our own count differs, shape (C,)."""
        result = judge(candidates, pod_request, is_enforcing=self.is_enforcing)
        return result.verdicts, result.mismatched

    def score_terms(
        self, candidates: Candidates, pod_request: PodRequest
    ) -> dict[str, Float64Array]:
        """Return each weighted term, float64 of shape (C,)."""
        if not self.is_enforcing:
            candidates = counted_as_full(candidates, pod_request)
        return score_terms(candidates, pod_request, self.score_options, self.weights)

    def total_up(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        """Return the profile's totals, who takes part, and tiers if they matter."""
        terms = self.score_terms(candidates, pod_request)
        totals = PROFILES[self.profile].combine(terms, self.weights)
        taking_part = candidates.known & ~candidates.failing
        if self.is_type_order_strict and len(pod_request.gpu_requirements.types) > 1:
            return totals, taking_part, type_tiers(candidates, pod_request)
        return totals, taking_part
