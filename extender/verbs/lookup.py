"""`look_up`: a call's pod request read, and its candidates found in a snapshot."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from cluster.decode.objects import NodeRecord, Pod, PodRecord
from cluster.ledger.changes import NodesListed, PodsListed
from cluster.ledger.ledger import Ledger
from extender.verbs.call import VerbCall
from extender.verbs.options import VerbOptions
from extender.wire import filter as wire
from scoring.candidates import PodRequest, primary_resource
from scoring.faults import Fault
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS
from scoring.packing.workload import supply_beside
from scoring.resources import CPU, Request
from scoring.snapshot import Snapshot, find_columns, has_repeats


def read_pod_request(pod: Pod, options: VerbOptions) -> PodRequest:
    """Return the request of `pod`; raise `wire.WireError` with all faults."""
    faults: list[Fault] = []
    held, is_managed = options.builder.held_by(pod, faults)
    if faults:  # an amount that no verb judges may be unreadable
        faults.clear()
        held = options.builder.judged_request_of(pod, faults)
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
    return PodRequest(
        pod.key,
        *asked,
        pod.status.nominated_node_name,
        gpu_requirements,
        options.builder.job_of(pod) if asked[0] else "",
        _cpu_in(held, options),
    )


def pod_request_of_record(record: PodRecord, options: VerbOptions) -> PodRequest:
    """Return the request of a pod of the cache, equal to that read of its object."""
    asked = _asked(record.request, record.constraints.node_selector, options)
    return PodRequest(
        record.uid,
        *asked,
        record.nominated_node,
        record.gpu_requirements,
        record.job,
        _cpu_in(record.request, options),
    )


def _cpu_in(held: Request, options: VerbOptions) -> int | None:
    """Return the cpu of an effective request; None where no score goes by it."""
    return dict(held).get(CPU, 0) if options.reads_cpu else None


def _asked(
    held: Request, selector: Mapping[str, str], options: VerbOptions
) -> tuple[Request, str, str | None]:
    """Return `request`, `primary` and `accelerator` of a `PodRequest`.

    Parameters
    ----------
    held : tuple of (str, int)
        The pod's effective request.
    selector : mapping of str to str
        Its ``nodeSelector``.
    """
    builder = options.builder
    request = tuple(pair for pair in held if builder.is_managed(pair[0]))
    primary = primary_resource(request, builder.scope)
    return request, primary, selector.get(options.label_keys.accelerator)


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
    ledger = Ledger(options.label_keys.columns())
    ledger.apply(NodesListed(tuple(records)))
    ledger.apply(PodsListed(()))
    built = ledger.build()
    supply = supply_beside(built.gpus.supply, snapshot.gpus.supply)
    return replace(
        built,
        gpus=replace(built.gpus, supply=supply),
        device_class_resources=snapshot.device_class_resources,
        expected=snapshot.expected,
    )
