"""`Subject`: the pod that is explained, from a manifest or from the watched cache."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from cluster.decode import Fault, constraints_of, convert_with_faults
from cluster.objects import Pod, PodConstraints, PodRecord
from extender.manifest import list_not_modelled, pod_in
from extender.question import VerbOptions, ask_of_record, read_ask
from extender.wire import WireError
from scoring.candidates import Ask
from scoring.objects import Request
from scoring.snapshot import Snapshot

Origin: TypeAlias = Literal["manifest", "pending", "bound"]

# A table has a row for each, and a pod has room for tens of thousands of them.
MAX_RESOURCES: Final = 256


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod, as far as it can be explained.

    Attributes
    ----------
    namespace, name : str
    origin : str
        Whether it comes from a manifest, or is pending or bound in the cache.
    node_name : str
        Where it is bound; empty for a pod without a node.
    ask : Ask
        What the verbs judge it by.
    request : tuple of (str, int)
        Its whole effective request of tracked resources, with its one ``pods``.
    constraints : PodConstraints
        Without the node that it has already.
    not_modelled : tuple of str
        What it says to kube-scheduler that is left out of account here.
    notes : tuple of str
        What a reader should know of how the pod was read.
    """

    namespace: str
    name: str
    origin: Origin
    node_name: str
    ask: Ask
    request: Request
    constraints: PodConstraints
    not_modelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_subject(
    snapshot: Snapshot, namespace: str, name: str, options: VerbOptions
) -> Subject | None:
    """Return a pending or bound pod of the cache that asks a managed resource.

    Raises `WireError` for one that asks too many of them.
    """
    pods = chain(snapshot.pending, snapshot.shares.values())
    for pod in pods:
        if (
            isinstance(pod, PodRecord)
            and pod.name == name
            and pod.namespace == namespace
        ):
            return _subject_of_record(pod, options)
    return None


def _subject_of_record(record: PodRecord, options: VerbOptions) -> Subject:
    """Return a pod of the cache; of its containers nothing is kept there."""
    if faults := list(_excess(record.request)):
        raise WireError(faults)
    notes = []
    if record.node_name:
        notes.append(
            f"The pod has a node already, {record.node_name}; its selectors and"
            " tolerations are no longer kept, so the checks on them are left out."
        )
    return Subject(
        namespace=record.namespace,
        name=record.name,
        origin="bound" if record.node_name else "pending",
        node_name=record.node_name,
        ask=ask_of_record(record, options),
        request=record.request,
        constraints=record.constraints,
        notes=(*notes, *_notes_on(record)),
    )


_UNREADABLE: Final = (
    "An annotation by which the pod says what cards it wants cannot be read: calls"
    " about it are answered 400 with the annotation and its value, in our log and in"
    " the answer to POST /explain. What is shown here is not what is answered."
)
_GATED: Final = (
    "The pod has scheduling gates: kube-scheduler does not look at it before they are"
    " gone."
)


def _notes_on(record: PodRecord) -> Iterator[str]:
    """Yield what is to be known of any such pod."""
    if record.is_gated:
        yield _GATED
    if not record.demand.is_readable:
        yield _UNREADABLE


def _excess(request: Request) -> Iterator[Fault]:
    """Yield a fault where a pod asks too many resources to be explained."""
    if len(request) > MAX_RESOURCES:
        said = f"wanted at most {MAX_RESOURCES} resources, got {len(request)}"
        yield Fault("spec.containers", said)


def read_subject(tree: Any, options: VerbOptions) -> Subject:
    """Return the pod of a manifest.

    Parameters
    ----------
    tree : Any
        A Pod, or an object with a template for pods, as a decoder leaves it; it is
        pruned in place. A name and a UID are not needed.
    options : VerbOptions

    Raises
    ------
    WireError
        With every fault and its path.
    """
    pod_tree, prefix, note = pod_in(tree)
    not_modelled = tuple(list_not_modelled(pod_tree.get("spec")))
    pod, faults = convert_with_faults(pod_tree, Pod)
    if pod is not None and not pod.spec.containers and not faults:
        faults.append(Fault("spec.containers", "wanted containers, got none"))
    if pod is None:
        raise _at(prefix, faults)
    record, found = options.builder.pod_record(pod)
    found += _excess(record.request)
    try:
        ask = read_ask(pod, options)
    except WireError as error:
        found += [
            Fault(fault.path.removeprefix("Pod."), fault.message)
            for fault in error.faults
        ]
        raise _at(prefix, faults + found) from error
    if faults or found:
        raise _at(prefix, faults + found)
    return _subject_of_pod(pod, record, ask, not_modelled, note)


def _at(prefix: str, faults: Iterable[Fault]) -> WireError:
    """Return the error of all faults, each told once, behind a path."""
    told = dict.fromkeys(faults)
    return WireError([Fault(prefix + fault.path, fault.message) for fault in told])


def _subject_of_pod(
    pod: Pod, record: PodRecord, ask: Ask, not_modelled: tuple[str, ...], note: str
) -> Subject:
    notes = [note] if note else []
    if pod.spec.node_name:
        notes.append(
            f"The pod has a node already, {pod.spec.node_name}; it is explained as if"
            " it had none."
        )
    return Subject(
        namespace=record.namespace or "default",
        name=record.name or record.generate_name,
        origin="manifest",
        node_name=pod.spec.node_name,
        ask=ask,
        request=record.request,
        # `kubectl get pod -o yaml` prints the node of a bound pod, which would then
        # be the only one that it may go to.
        constraints=_without_node(constraints_of(pod)),
        not_modelled=not_modelled,
        notes=(*notes, *_notes_on(record)),
    )


def _without_node(constraints: PodConstraints) -> PodConstraints:
    return PodConstraints(
        node_selector=constraints.node_selector,
        affinity_terms=constraints.affinity_terms,
        tolerations=constraints.tolerations,
    )
