"""The pod that is explained: of the cache, or of a manifest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod, PodConstraints, PodRecord
from cluster.decode.records import constraints_of
from extender.verbs.lookup import pod_request_of_record, read_pod_request
from extender.verbs.options import VerbOptions
from extender.wire.filter import WireError
from scoring.candidates import PodRequest
from scoring.faults import Fault
from scoring.quantity import shorten
from scoring.resources import Request
from scoring.snapshot import Snapshot

# kind -> where its pods' template is
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController"),
        ("spec", "template"),
    ),
    "StatefulSet": ("spec", "template"),
}


def pod_in(tree: Any) -> tuple[dict[str, Any], str, str]:
    """Return the pod in a tree, the path to it, and a note about both."""
    if not isinstance(tree, dict):
        raise WireError([Fault("object", f"wanted a Pod, got {shorten(tree)}")])
    kind = tree.get("kind", "Pod")
    if kind == "Pod":
        return tree, "", ""
    steps = TEMPLATES.get(kind) if isinstance(kind, str) else None
    if steps is None:
        wanted = ", ".join(sorted(TEMPLATES))
        said = f"wanted Pod or one of {wanted}, got {shorten(kind)}"
        raise WireError([Fault("kind", said)])
    found: Any = tree
    for index, step in enumerate(steps, 1):
        found = found.get(step)
        if not isinstance(found, dict):
            path = ".".join(steps[:index])
            raise WireError([Fault(path, f"wanted an object, got {shorten(found)}")])
    # Pods of a template are named by their controller.
    owner = tree.get("metadata")
    inherited = {
        key: owner[key]
        for key in ("name", "namespace")
        if isinstance(owner, dict) and key in owner
    }
    meta = found.get("metadata")
    if meta is None or isinstance(meta, dict):
        found = {**found, "metadata": {**inherited, **(meta or {})}}
    name = shorten(inherited.get("name", ""))
    return (
        found,
        ".".join(steps) + ".",
        f"The pod is the template of the {kind} {name}.",
    )


def list_not_modelled(spec: Any) -> Iterator[str]:
    """Yield the wishes of a spec that kube-scheduler follows and we do not model."""
    if not isinstance(spec, dict):
        return
    if spec.get("topologySpreadConstraints"):
        yield "topology spread"
    affinity = spec.get("affinity")
    if isinstance(affinity, dict) and (
        affinity.get("podAffinity") or affinity.get("podAntiAffinity")
    ):
        yield "pod affinity"
    volumes = spec.get("volumes")
    if any(
        isinstance(volume, dict)
        and (volume.get("persistentVolumeClaim") or volume.get("ephemeral"))
        for volume in (volumes if isinstance(volumes, list) else [])
    ):
        yield "volumes"
    if any(map(_has_host_port, _containers(spec))):
        yield "host ports"
    if spec.get("resourceClaims"):
        yield "resource claims"


def _containers(spec: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the containers of a spec, whatever they are."""
    for key in ("containers", "initContainers"):
        found = spec.get(key)
        yield from found if isinstance(found, list) else []


def _has_host_port(container: Any) -> bool:
    """Whether a container asks for a port of its node."""
    ports = container.get("ports") if isinstance(container, dict) else None
    return isinstance(ports, list) and any(
        isinstance(port, dict) and port.get("hostPort") for port in ports
    )


Origin: TypeAlias = Literal["manifest", "pending", "bound"]

# A table has a row for each, and a pod has room for tens of thousands of them.
MAX_RESOURCES: Final = 256


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod with all that an explanation reads of it.

    Attributes
    ----------
    origin : str
        Whether it comes from a manifest, or is pending or bound in the cache.
    node_name : str
        Where it is bound; empty for a pod without a node.
    pod_request : PodRequest
        What the verbs judge it by.
    request : tuple of (str, int)
        Its whole effective request of tracked resources, with its one ``pods``.
    constraints : PodConstraints
        Without the node that it has already.
    not_modelled : tuple of str
        Its wishes that kube-scheduler follows and this explanation leaves out.
    notes : tuple of str
        For the reader, on how the pod was read.
    """

    namespace: str
    name: str
    origin: Origin
    node_name: str
    pod_request: PodRequest
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
    pods = chain(snapshot.pending, snapshot.bound_pods.values())
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
        pod_request=pod_request_of_record(record, options),
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
    """Yield notes that do not depend on where the pod comes from."""
    if record.is_gated:
        yield _GATED
    if not record.gpu_requirements.is_readable:
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
        pod_request = read_pod_request(pod, options)
    except WireError as error:
        found += [
            Fault(fault.path.removeprefix("Pod."), fault.message)
            for fault in error.faults
        ]
        raise _at(prefix, faults + found) from error
    if faults or found:
        raise _at(prefix, faults + found)
    return _subject_of_pod(pod, record, pod_request, not_modelled, note)


def _at(prefix: str, faults: Iterable[Fault]) -> WireError:
    """Return the error of all faults, each told once, behind a path."""
    told = dict.fromkeys(faults)
    return WireError([Fault(prefix + fault.path, fault.message) for fault in told])


def _subject_of_pod(
    pod: Pod,
    record: PodRecord,
    pod_request: PodRequest,
    not_modelled: tuple[str, ...],
    note: str,
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
        pod_request=pod_request,
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
