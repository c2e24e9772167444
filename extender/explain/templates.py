"""Pods in objects of many kinds: where their templates are, and how many there will be.

A kind is told by its API group: two projects may use one name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from extender.wire.filter import WireError
from scoring.faults import Fault
from scoring.quantity import shorten

Tree: TypeAlias = dict[str, Any]

# Of one object; an explanation of each takes its time.
MAX_TEMPLATES: Final = 32

# Stands for each entry of a list or mapping on the way to a template.
EACH: Final = "*"


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod of an object, as its controller would create it.

    Attributes
    ----------
    tree : dict
    path : str
        To it, with a dot at the end; empty for a Pod.
    note : str
        On what it is the template of; empty for a Pod.
    replicas : int
        How many such pods the object asks for at a time.
    not_modelled : tuple of str
        What its controller adds that the object does not say.
    """

    tree: Tree
    path: str = ""
    note: str = ""
    replicas: int = 1
    not_modelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplatePath:
    """The way to templates of one kind.

    Attributes
    ----------
    holder : tuple of str
        To the object that has the template, and `counts` beside it.
    template : tuple of str
        From there.
    counts : tuple of str
        Paths from the holder, or with a slash before them from the object, to numbers
        whose product is that of the pods; of several with a bar between, the first that
        is there.
    is_optional : bool
        Whether an object need not have it.
    """

    holder: tuple[str, ...]
    template: tuple[str, ...] = ("template",)
    counts: tuple[str, ...] = ("replicas",)
    is_optional: bool = False


def _one(*holder: str, counts: Sequence[str] = ("replicas",)) -> tuple[TemplatePath]:
    return (TemplatePath(holder, counts=tuple(counts)),)


def _ray(*spec: str) -> tuple[TemplatePath, ...]:
    return (
        TemplatePath((*spec, "headGroupSpec"), counts=()),
        TemplatePath(
            (*spec, "workerGroupSpecs", EACH),
            counts=("replicas|minReplicas", "numOfHosts"),
            is_optional=True,
        ),
    )


_SUBMITTER: Final = TemplatePath(
    ("spec",), ("submitterPodTemplate",), (), is_optional=True
)

WORKERS: Final = "workerSpec"

_INLINE: Final = (
    *(
        TemplatePath(
            ("spec", part), (), ("minReplicas",), is_optional=part != "predictor"
        )
        for part in ("predictor", "transformer", "explainer")
    ),
    TemplatePath(
        ("spec", "predictor", WORKERS),
        (),
        ("/spec.predictor.minReplicas", "pipelineParallelSize"),
        is_optional=True,
    ),
)

# (API group, kind) -> where its pods' templates are
KINDS: Final[Mapping[tuple[str, str], tuple[TemplatePath, ...]]] = {
    ("apps", "Deployment"): _one("spec"),
    ("apps", "StatefulSet"): _one("spec"),
    ("apps", "ReplicaSet"): _one("spec"),
    ("apps", "DaemonSet"): _one("spec", counts=()),
    ("batch", "Job"): _one("spec", counts=("parallelism",)),
    ("batch", "CronJob"): _one("spec", "jobTemplate", "spec", counts=("parallelism",)),
    ("", "PodTemplate"): _one(counts=()),
    ("", "ReplicationController"): _one("spec"),
    ("batch.volcano.sh", "Job"): _one("spec", "tasks", EACH),
    **{
        ("kubeflow.org", kind): _one("spec", key, EACH)
        for kind, key in (
            ("PyTorchJob", "pytorchReplicaSpecs"),
            ("MPIJob", "mpiReplicaSpecs"),
            ("TFJob", "tfReplicaSpecs"),
            ("JAXJob", "jaxReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
        )
    },
    ("ray.io", "RayCluster"): _ray("spec"),
    ("ray.io", "RayJob"): (*_ray("spec", "rayClusterSpec"), _SUBMITTER),
    ("ray.io", "RayService"): _ray("spec", "rayClusterConfig"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        TemplatePath(
            ("spec", "leaderWorkerTemplate"),
            ("leaderTemplate",),
            ("/spec.replicas",),
            is_optional=True,
        ),
        TemplatePath(
            ("spec", "leaderWorkerTemplate"),
            ("workerTemplate",),
            ("/spec.replicas", "size"),
        ),
    ),
    ("jobset.x-k8s.io", "JobSet"): (
        TemplatePath(
            ("spec", "replicatedJobs", EACH),
            ("template", "spec", "template"),
            ("replicas", "template.spec.parallelism"),
        ),
    ),
    ("serving.kserve.io", "InferenceService"): _INLINE,
}

POD_KINDS: Final = frozenset({"Pod", *(kind for _, kind in KINDS)})

# Fields of a predictor of KServe that stand for a container of their own.
_RUNTIMES: Final = (
    "model",
    "sklearn",
    "xgboost",
    "tensorflow",
    "pytorch",
    "triton",
    "onnx",
    "huggingface",
    "pmml",
    "lightgbm",
    "paddle",
)


def templates_in(tree: Any) -> list[PodTemplate]:
    """Return the pods in a tree: itself, or its templates; raise `WireError`."""
    if not isinstance(tree, dict):
        raise WireError([Fault("object", f"wanted a Pod, got {shorten(tree)}")])
    kind, version = tree.get("kind", "Pod"), tree.get("apiVersion")
    if kind == "Pod":
        if version not in (None, "v1"):
            said = f"wanted v1 for a Pod, got {shorten(version)}"
            raise WireError([Fault("apiVersion", said)])
        return [PodTemplate(tree)]
    found = list(_templates(tree, _paths_of(kind, version)))
    if len(found) > MAX_TEMPLATES:
        said = f"wanted at most {MAX_TEMPLATES} templates of pods, got {len(found)}"
        raise WireError([Fault("spec", said)])
    return found


def _paths_of(kind: Any, version: Any) -> tuple[TemplatePath, ...]:
    """Return the ways to the templates of a kind; without a group, of the first."""
    groups = [group for group, name in KINDS if name == kind]
    if not groups:
        wanted = ", ".join(sorted(POD_KINDS - {"Pod"}))
        said = f"wanted Pod or one of {wanted}, got {shorten(kind)}"
        raise WireError([Fault("kind", said)])
    if version is None:
        return KINDS[groups[0], kind]
    group = version.rpartition("/")[0] if isinstance(version, str) else None
    if group not in groups:
        wanted = " or ".join(f"group {name or 'v1'}" for name in groups)
        said = f"wanted {wanted} for a {kind}, got {shorten(version)}"
        raise WireError([Fault("apiVersion", said)])
    return KINDS[group, kind]


def _templates(tree: Tree, paths: Sequence[TemplatePath]) -> Iterator[PodTemplate]:
    """Yield the templates on some ways."""
    for path in paths:
        for steps, holder in _holders(tree, path):
            template: Any = holder
            walked = list(steps)
            for step in path.template:
                walked.append(step)
                template = template.get(step) if isinstance(template, dict) else None
            where = _join(walked)
            if template is None and path.is_optional:
                continue
            if not isinstance(template, dict):
                said = f"wanted an object, got {shorten(template)}"
                raise WireError([Fault(where, said)])
            yield _named(tree, template, path, steps, holder, where)


def _holders(
    tree: Tree, path: TemplatePath
) -> Iterator[tuple[list[str | int], dict[str, Any]]]:
    """Yield path and object of each holder; raise for one that is none."""
    found: list[tuple[list[str | int], Any]] = [([], tree)]
    for step in path.holder:
        if step == EACH:
            found = [
                ([*steps, key], item)
                for steps, items in found
                for key, item in _entries(items)
            ]
            continue
        found = [
            ([*steps, step], _object(items, steps).get(step)) for steps, items in found
        ]
        for steps, item in found:
            if item is None and path.is_optional:
                return
            if not isinstance(item, dict | list):
                said = f"wanted an object, got {shorten(item)}"
                raise WireError([Fault(_join(steps), said)])
    if not found and not path.is_optional:
        where = ".".join(step for step in path.holder if step != EACH)
        raise WireError([Fault(where, "wanted templates of pods, got none")])
    for steps, item in found:
        yield steps, _object(item, steps)


def _object(value: Any, steps: Sequence[str | int]) -> Tree:
    """Return what is at a path; raise `WireError` if it is no object."""
    if not isinstance(value, dict):
        raise WireError(
            [Fault(_join(steps), f"wanted an object, got {shorten(value)}")]
        )
    return value


def _entries(items: Any) -> Iterator[tuple[str | int, Any]]:
    """Yield the entries of a list by number, or of a mapping by key."""
    if isinstance(items, dict):
        yield from items.items()
    elif isinstance(items, list):
        yield from enumerate(items)


def _join(steps: Sequence[str | int]) -> str:
    """Return a path as faults have it.

    >>> _join(["spec", "tasks", 0, "template"])
    'spec.tasks[0].template'
    """
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _named(  # noqa: PLR0913, PLR0917 - what a template is told by
    tree: Tree,
    template: Tree,
    path: TemplatePath,
    steps: Sequence[str | int],
    holder: Tree,
    where: str,
) -> PodTemplate:
    """Return a template under the name of its owner: pods are named by that."""
    kind, owner = tree["kind"], tree.get("metadata")
    inherited = {
        key: owner[key]
        for key in ("name", "namespace")
        if isinstance(owner, dict) and key in owner
    }
    name = shorten(inherited.get("name", ""))
    unsaid: tuple[str, ...] = ()
    if not path.template:
        unsaid = _unsaid(path, template)
        bare = [{"name": "worker-container"}] if path.holder[-1] == WORKERS else []
        template = {"spec": _inline_spec(template, bare)}
    part = _part_name(path, steps, holder)
    meta = template.get("metadata")
    if meta is None or isinstance(meta, dict):
        template = {**template, "metadata": {**inherited, **(meta or {})}}
    if kind == "Job" and path.holder[-1] == EACH:
        template = _of_volcano(tree, template)
    if kind in _CONTROLLERS:
        template = _CONTROLLERS[kind](tree, template)
    of = f"{part} of the {kind} {name}" if part else f"the {kind} {name}"
    note = f"The pod is the template of {of}{_NOTES.get(kind, '.')}"
    count = _count(tree, holder, steps, path)
    return PodTemplate(template, f"{where}.", note, count, unsaid)


# Steps that do not tell one template of an object from another.
_PLAIN: Final = frozenset({"spec", "template", "jobTemplate"})


def _part_name(path: TemplatePath, steps: Sequence[str | int], holder: Tree) -> str:
    """Return which of several templates it is; empty where there is one."""
    if path.holder and path.holder[-1] == EACH:
        named = holder.get("name") or holder.get("groupName")
        return str(named)[:63] if named else str(steps[-1])
    steps_told = [step for step in (*path.holder, *path.template) if step not in _PLAIN]
    return steps_told[-1] if steps_told else ""


def _count(
    tree: Tree, holder: Tree, steps: Sequence[str | int], path: TemplatePath
) -> int:
    """Return how many pods there will be; a number that is absent is one.

    `steps` lead to the holder.
    """
    product = 1
    for text in path.counts:
        numbers = (_number_at(tree, holder, steps, way) for way in text.split("|"))
        found = next((number for number in numbers if number is not None), 1)
        if text.endswith(_PARALLELISM):
            way = text.replace(_PARALLELISM, "completions")
            ends = _number_at(tree, holder, steps, way)
            found = found if ends is None else min(found, ends)
        # Of a group, the leader has a template of its own where it has one.
        is_led = text == "size" and bool(holder.get("leaderTemplate"))
        if is_led or (text == "pipelineParallelSize" and text in holder):
            found = max(found - 1, 0)
        product *= found
    return product


# A Job never has more pods at a time than have yet to complete.
_PARALLELISM: Final = "parallelism"


def _number_at(
    tree: Tree, holder: Tree, steps: Sequence[str | int], path: str
) -> int | None:
    """Return the number on a path of `TemplatePath.counts`; None where there is none.

    Raises `WireError` for what is no number of pods, which Kubernetes refuses, too.
    """
    is_of_object = path.startswith("/")
    found: Any = tree if is_of_object else holder
    names = path.removeprefix("/").split(".")
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        where = _join(names if is_of_object else [*steps, *names])
        said = f"wanted a whole number from 0, got {shorten(found)}"
        raise WireError([Fault(where, said)])
    return found


def _of_volcano(tree: Tree, template: Tree) -> Tree:
    """Return a template with the scheduler that Volcano's controller gives it."""
    spec, job = template.get("spec"), tree.get("spec")
    if not isinstance(spec, dict) or spec.get("schedulerName"):
        return template
    chosen = job.get("schedulerName") if isinstance(job, dict) else None
    return {**template, "spec": {**spec, "schedulerName": chosen or "volcano"}}


def _of_daemon_set(_: Tree, template: Tree) -> Tree:
    """Return a template with the tolerations that the controller adds.

    ``AddOrUpdateDaemonPodTolerations`` in ``pkg/controller/daemon/util`` of Kubernetes.
    """
    spec = template.get("spec")
    own = (spec.get("tolerations") or []) if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(own, list):
        return template
    effects = dict(_TOLERATED)
    if spec.get("hostNetwork") is True:
        effects["network-unavailable"] = "NoSchedule"
    added = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
        for key, effect in effects.items()
    ]
    return {**template, "spec": {**spec, "tolerations": [*own, *added]}}


_TOLERATED: Final = {
    "not-ready": "NoExecute",
    "unreachable": "NoExecute",
    "disk-pressure": "NoSchedule",
    "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule",
    "unschedulable": "NoSchedule",
}


def _of_stateful_set(tree: Tree, template: Tree) -> Tree:
    """Return a template with the volumes of the claims that the controller makes."""
    spec, whole = template.get("spec"), tree.get("spec")
    claims = whole.get("volumeClaimTemplates") if isinstance(whole, dict) else None
    own = (spec.get("volumes") or []) if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(own, list):
        return template
    metas = [c.get("metadata") for _, c in _entries(claims) if isinstance(c, dict)]
    names = [meta.get("name") for meta in metas if isinstance(meta, dict)]
    added = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
        for name in names
        if isinstance(name, str)
    ]
    if not added:
        return template
    return {**template, "spec": {**spec, "volumes": [*own, *added]}}


_CONTROLLERS: Final[Mapping[str, Callable[[Tree, Tree], Tree]]] = {
    "DaemonSet": _of_daemon_set,
    "StatefulSet": _of_stateful_set,
}

_NOTES: Final = {
    "DaemonSet": ", which makes one for each node; where it does not fit, that one"
    " waits."
}


def _unsaid(path: TemplatePath, part: Tree) -> tuple[str, ...]:
    """Return what a part of an InferenceService leaves to its runtime."""
    has_runtime = any(isinstance(part.get(key), dict) for key in _RUNTIMES)
    is_bare = path.holder[-1] == WORKERS and not part.get("containers")
    return ("what its ServingRuntime adds",) if has_runtime or is_bare else ()


def _inline_spec(part: Tree, bare: Sequence[Tree]) -> Tree:
    """Return the pod spec that a part of an InferenceService is, its runtime inside.

    `bare` are the containers of a part that names none.
    """
    containers = part.get("containers")
    runtimes = [
        {"name": "kserve-container", **part[key]}
        for key in _RUNTIMES
        if isinstance(part.get(key), dict)
    ]
    left_out = {*_RUNTIMES, WORKERS}
    rest = {key: value for key, value in part.items() if key not in left_out}
    if not runtimes:
        return {**rest, "containers": bare} if bare and not containers else rest
    others = containers if isinstance(containers, list) else []
    return {**rest, "containers": [*runtimes, *others]}
