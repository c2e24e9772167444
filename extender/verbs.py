"""filter and prioritize on one snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from cluster.changes import NodesListed, PodsListed
from cluster.decode import Fault, RecordBuilder
from cluster.ledger import Ledger
from cluster.objects import NodeRecord, Pod
from extender import answers, wire
from scoring.candidates import (
    Ask,
    Candidates,
    LabelKeys,
    has_repeats,
    primary_resource,
    take_candidates,
)
from scoring.feasibility import Feasibility, counted_as_full, judge
from scoring.policy import PROFILES, normalize_min_max, score_terms
from scoring.snapshot import BytesArray, IndexArray, Int64Array, Snapshot
from scoring.strategies import ScoreOptions


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
        A key of `scoring.policy.PROFILES`.
    weights : mapping
        term name -> weight in hundredths
    score_options : ScoreOptions
    max_score : int
        The best node's score on the wire.
    """

    builder: RecordBuilder
    label_keys: LabelKeys
    is_enforcing: bool
    profile: str
    weights: Mapping[str, int]
    score_options: ScoreOptions
    max_score: int


def read_ask(pod: Pod, options: VerbOptions) -> Ask:
    """Return what `pod` asks of a node; raise `wire.WireError` with all faults."""
    faults: list[Fault] = []
    scope = options.builder.scope
    request = tuple(
        (name, amount)
        for name, amount in options.builder.request_of(pod, faults)
        if options.builder.is_managed(name)
    )
    if faults:
        raise wire.WireError(
            [Fault(f"Pod.{fault.path}", fault.message) for fault in faults]
        )
    selector = pod.spec.node_selector or {}
    return Ask(
        uid=pod.metadata.uid,
        request=request,
        primary=primary_resource(request, scope),
        accelerator=selector.get(options.label_keys.accelerator),
        nominated_node=pod.status.nominated_node_name,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One call, with all that its answer is computed from.

    Attributes
    ----------
    ask : Ask
    names : sequence of str, length C
        Each once, in the order of the request.
    quoted : object array of bytes, shape (C,)
        The candidates' names as JSON strings.
    candidates : Candidates
        The nodes of the cache.
    templates : Candidates or None
        Judged from the request's own objects, where the cache lacks some of them.
    """

    ask: Ask
    names: Sequence[str]
    quoted: BytesArray
    candidates: Candidates
    templates: Candidates | None = None


def pose(args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions) -> Question:
    """Look the call's candidates up in `snapshot`."""
    ask = read_ask(args.pod, options)
    names, keys = args.names, options.label_keys
    candidates = take_candidates(snapshot, names, ask, keys)
    if has_repeats(names, candidates, len(snapshot.nodes.names)):
        names = tuple(dict.fromkeys(names))
        candidates = take_candidates(snapshot, names, ask, keys)
    quoted = _quote(names, candidates, snapshot)
    templates = None
    if args.nodes is not None and ask.request and not candidates.known.all():
        absent = {
            name: args.nodes[name]
            for name, known in zip(names, candidates.known, strict=True)
            if not known
        }
        templates = take_candidates(
            _template_snapshot(absent, snapshot, options), names, ask, keys
        )
    return Question(ask, names, quoted, candidates, templates)


def _quote(
    names: Sequence[str], candidates: Candidates, snapshot: Snapshot
) -> BytesArray:
    """Return the names as JSON strings, from the snapshot where it has them."""
    if candidates.known.all() and len(snapshot.nodes.names):
        return snapshot.nodes.quoted.take(candidates.columns)
    quoted = np.empty(len(names), dtype=object)
    quoted[:] = [answers.quote_name(name) for name in names]
    return quoted


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


def filter_nodes(question: Question, options: VerbOptions) -> Feasibility:
    """Return the verdict on each candidate of the question."""
    result = judge(question.candidates, question.ask, is_enforcing=options.is_enforcing)
    if question.templates is None:
        return result
    known = question.candidates.known
    template = judge(
        question.templates, question.ask, is_enforcing=options.is_enforcing
    )
    return Feasibility(
        np.where(known, result.verdicts, template.verdicts), result.disagreeing
    )


def prioritize_nodes(
    question: Question, options: VerbOptions, places: IndexArray | None = None
) -> Int64Array:
    """Return what goes on the wire for each candidate, int64 of shape (C,).

    With `places`, only the candidates there take part and are returned. A pod that
    asks for nothing that we manage gets 0 everywhere: we have no opinion.
    """
    known = question.candidates.known
    if not question.ask.request:
        count = len(known) if places is None else len(places)
        return np.zeros(count, dtype=np.int64)
    totals = _totals(question.candidates, question.ask, options)
    if question.templates is not None:
        template_totals = _totals(question.templates, question.ask, options)
        totals = np.where(known, totals, template_totals)
        known = known | question.templates.known
    if places is not None:
        totals, known = totals.take(places), known.take(places)
    return normalize_min_max(totals, known, options.max_score)


def _totals(candidates: Candidates, ask: Ask, options: VerbOptions) -> Int64Array:
    """Return the profile's total for each candidate."""
    if not options.is_enforcing:
        candidates = counted_as_full(candidates, ask)
    terms = score_terms(candidates, ask, options.score_options, options.weights)
    profile: Callable[..., Int64Array] = PROFILES[options.profile]
    return profile(terms, options.weights)
