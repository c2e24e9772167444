"""`VerbCall`: what a filter or prioritize call asks, looked up in one snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from cluster.decode.objects import NodeRecord, Pod, PodRecord
from cluster.decode.records import RecordBuilder
from cluster.ledger.changes import NodesListed, PodsListed
from cluster.ledger.ledger import Ledger
from extender.verbs.reuse import Arrays, SharedResults
from extender.wire import answers
from extender.wire import filter as wire
from scoring.candidates import Candidates, LabelKeys, PodRequest, primary_resource
from scoring.faults import Fault
from scoring.feasibility import counted_as_full, judge
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS
from scoring.normalization import Scale
from scoring.profiles import PROFILES, score_terms
from scoring.resources import Request
from scoring.snapshot import (
    Float64Array,
    IndexArray,
    Snapshot,
    find_columns,
    has_repeats,
)
from scoring.terms import ScoreOptions, type_tiers


@dataclass(frozen=True, slots=True)
class VerbOptions:
    """What the settings say of the verbs.

    Attributes
    ----------
    builder : RecordBuilder
        Reads pods and template nodes as the cache does.
    label_keys : LabelKeys
    is_enforcing : bool
        ``counts: enforce``; otherwise kube-scheduler's own count is trusted.
    profile : str
        A key of `scoring.profiles.PROFILES`.
    weights : mapping
        term name -> weight in hundredths
    score_options : ScoreOptions
    scale : Scale
        How totals become priorities.
    shortlist : int
        How many feasible nodes a filter call answers at most; 0 for all.
    is_type_order_strict : bool
        Whether a node of an earlier type in the pod's list precedes all of later ones.
    shared_results : SharedResults
        What has been computed of all nodes with these options.
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
    shared_results: SharedResults = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "shared_results", SharedResults(self.assess, self.label_keys)
        )

    def assess(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        """Return the arrays of `judge`, then those of `total_up`, shape (C,).

        PERF: together, since nearly every pod that is judged is scored a moment later,
        and most of what a few changed nodes cost is to begin; ``bench.scheduler``
        """
        return *self.judge(candidates, pod_request), *self.total_up(
            candidates, pod_request
        )

    def judge(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        """Return verdicts, and where our own count disagrees, shape (C,)."""
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


def read_pod_request(pod: Pod, options: VerbOptions) -> PodRequest:
    """Return what `pod` asks of a node; raise `wire.WireError` with all faults."""
    faults: list[Fault] = []
    held, is_managed = options.builder.held_by(pod, faults)
    asked = _asked(held if is_managed else (), pod.spec.node_selector or {}, options)
    gpu_requirements = (
        options.builder.gpu_requirements_of(pod, faults)
        if asked[0]
        else NO_GPU_REQUIREMENTS
    )
    if faults:
        raise wire.WireError(
            [Fault(f"Pod.{fault.path}", fault.message) for fault in faults],
            pod.key,
        )
    return PodRequest(pod.key, *asked, pod.status.nominated_node_name, gpu_requirements)


def pod_request_of_record(record: PodRecord, options: VerbOptions) -> PodRequest:
    """Return the request of a pod of the cache, equal to that read of its object."""
    asked = _asked(record.request, record.constraints.node_selector, options)
    return PodRequest(
        record.uid, *asked, record.nominated_node, record.gpu_requirements
    )


def _asked(
    held: Request, selector: Mapping[str, str], options: VerbOptions
) -> tuple[Request, str, str | None]:
    """Return `request`, `primary` and `accelerator` of an `PodRequest`.

    Parameters
    ----------
    held : tuple of (str, int)
        The pod's effective request.
    selector : mapping of str to str
        Its ``nodeSelector``.
    options : VerbOptions
    """
    builder = options.builder
    request = tuple(pair for pair in held if builder.is_managed(pair[0]))
    primary = primary_resource(request, builder.scope)
    return request, primary, selector.get(options.label_keys.accelerator)


@dataclass(frozen=True, slots=True, eq=False)
class VerbCall:
    """One call, with all that its answer is computed from.

    Attributes
    ----------
    pod_request : PodRequest
    names : sequence of str, length C
        Each once, in the order of the request.
    columns : index array, shape (C,)
        Column of each node in the snapshot, -1 where it is not there.
    snapshot : Snapshot
    templates : Snapshot or None
        The nodes that only the request knows, if it has their objects.
    is_literal : bool
        Whether the names stand in JSON as they are, between quotes.
    has_unknown : bool
        Whether the cache lacks a candidate.
    """

    pod_request: PodRequest
    names: Sequence[str]
    columns: IndexArray
    snapshot: Snapshot
    templates: Snapshot | None = None
    is_literal: bool = False
    has_unknown: bool = field(init=False)

    def __post_init__(self) -> None:
        lowest = np.minimum.reduce(self.columns) if len(self.columns) else 0
        object.__setattr__(self, "has_unknown", bool(lowest < 0))

    def literals(self, places: IndexArray | None = None) -> Sequence[str]:
        """Return names, all or those at `places`, as they stand in quotes in JSON."""
        names = self.names
        if places is not None and len(places) < len(names):
            names = [names[place] for place in places.tolist()]
        return names if self.is_literal else list(map(answers.literal, names))


def look_up(
    args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions
) -> VerbCall:
    """Look the call's candidates up in `snapshot`."""
    pod_request = read_pod_request(args.pod, options)
    names = args.names
    columns = find_columns(snapshot, names)
    verb_call = VerbCall(
        pod_request, names, columns, snapshot, is_literal=args.is_literal
    )
    known = None if verb_call.has_unknown else columns
    if has_repeats(names, known, len(snapshot.nodes.names)):
        names = tuple(dict.fromkeys(names))
        columns = find_columns(snapshot, names)
        verb_call = VerbCall(
            pod_request, names, columns, snapshot, is_literal=args.is_literal
        )
    if args.nodes is None or not pod_request.request or not verb_call.has_unknown:
        return verb_call
    absent = {
        name: args.nodes[name]
        for name, column in zip(names, columns.tolist(), strict=True)
        if column < 0
    }
    return replace(verb_call, templates=_template_snapshot(absent, snapshot, options))


def _template_snapshot(
    absent: Mapping[str, msgspec.Raw], snapshot: Snapshot, options: VerbOptions
) -> Snapshot:
    """Return a snapshot of nodes that only the request knows, all of them empty."""
    faults: list[Fault] = []
    records: list[NodeRecord] = []
    for name, raw in absent.items():
        try:
            node = wire.decode_node(raw, name)
        except wire.WireError as error:
            faults += error.faults
            continue
        record, found = options.builder.node_record(node)
        faults += [Fault(f"Nodes[{name!r}].{f.path}", f.message) for f in found]
        records.append(record)
    if faults:
        raise wire.WireError(faults)
    ledger = Ledger((options.label_keys.accelerator, options.label_keys.interconnect))
    ledger.apply(NodesListed(tuple(records)))
    ledger.apply(PodsListed(()))
    return replace(
        ledger.build(), device_class_resources=snapshot.device_class_resources
    )
