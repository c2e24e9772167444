"""The filter, one node after the other, and the classic score, from their pages."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from tests.oracles.pods import Tree, is_over, takes
from tests.oracles.quantities import exact

GPU: Final = "nvidia.com/gpu"
MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_3G: Final = "nvidia.com/mig-3g.40gb"
AMD: Final = "amd.com/gpu"
SLICES: Final = {MIG_1G: 10, MIG_3G: 40}
PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
REPLICAS: Final = "nvidia.com/gpu.replicas"
MIG_STATE: Final = "nvidia.com/mig.config.state"
TYPE: Final = "gpu-extender.io/gpu-type"
MIN_MEMORY: Final = "gpu-extender.io/min-gpu-memory"
SHARING: Final = "gpu-extender.io/sharing"
EXCLUSIVE: Final = "gpu-extender.io/exclusive"
GIB: Final = 2**30

# product -> the names that a pod can ask it by, and its memory in GiB; None unknown
PRODUCTS: Final[Mapping[str, tuple[frozenset[str], int | None]]] = {
    "NVIDIA-H100-80GB-HBM3": (frozenset({"h100", "h100-80gb"}), 80),
    "NVIDIA-A100-SXM4-80GB": (frozenset({"a100", "a100-80gb"}), 80),
    "NVIDIA-A100-SXM4-40GB": (frozenset({"a100", "a100-40gb"}), 40),
    "NVIDIA-L4": (frozenset({"l4"}), 24),
    "Tesla-T4": (frozenset({"t4"}), 16),
    "Acme-1": (frozenset({"acme-1"}), None),
}

# The rows of the page: later ones are nearer to a node that takes the pod.
ROWS: Final = (
    "Node is not known to gpu-extender",
    "Node has no GPU",
    "Node does not offer the GPU resource",
    "GPUs are cut or shared",
    "GPUs are not ready",
    "Too few GPUs on the node",
    "GPU type does not match",
    "GPU type unknown",
    "Too little GPU memory",
    "GPUs are not shared with this pod",
    "Insufficient GPUs",
)


def is_managed(resource: str) -> bool:
    """Return whether pods are judged on a resource, as shipped."""
    return resource.startswith(("nvidia.com/", "amd.com/"))


@dataclass
class Answer:
    """What the filter says: names that pass, and a text for each other one."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)


def answer(
    nodes: Iterable[Tree], pods: Sequence[Tree], pod: Tree, names: Iterable[str]
) -> Answer:
    """Return the filter's answer with ``counts: enforce``."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    found = Answer()
    for name in names:
        said = _refusal(by_name.get(name), pods, pod)
        if said is None:
            found.passed.append(name)
        else:
            text, helps_eviction = said
            (found.failed if helps_eviction else found.unresolvable)[name] = text
    texts = {*found.failed.values(), *found.unresolvable.values()}
    if texts and not found.passed:
        text = max(texts, key=ROWS.index)
        found.failed = dict.fromkeys(found.failed, text)
        found.unresolvable = dict.fromkeys(found.unresolvable, text)
    return found


def _refusal(
    node: Tree | None, pods: Sequence[Tree], pod: Tree
) -> tuple[str, bool] | None:
    """Return why a node is refused, and whether evicting others can help."""
    asked = {name: amount for name, amount in takes(pod).items() if is_managed(name)}
    asked = {name: amount for name, amount in asked.items() if amount}
    if not asked:
        return None
    if node is None:
        return ROWS[0], False
    there = [
        other
        for other in pods
        if other["spec"].get("nodeName") == node["metadata"]["name"]
        and not is_over(other)
        and other["metadata"]["uid"] != pod["metadata"]["uid"]
    ]
    held: Counter[str] = sum(map(takes, there), Counter())
    is_nominated = pod["status"].get("nominatedNodeName") == node["metadata"]["name"]
    is_short = not is_nominated and any(
        _offer(node, name) - held[name] < amount for name, amount in asked.items()
    )
    text = (
        _absent_or_sick(node, asked)
        or _too_few(node, asked)
        or _unsuitable(node, pod, asked)
    )
    if text is not None:
        return text, False
    users = [other for other in there if any(map(is_managed, _positive(takes(other))))]
    is_lone = is_exclusive(pod) and bool(users)
    if is_lone or any(map(is_exclusive, users)):
        return ROWS[9], is_short or is_nominated
    return (ROWS[10], True) if is_short else None


def is_exclusive(pod: Tree) -> bool:
    """Return whether a pod wants no other GPU pod beside it."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(EXCLUSIVE) == "true"


def _positive(amounts: Mapping[str, int]) -> list[str]:
    return [name for name, amount in amounts.items() if amount > 0]


def _offer(node: Tree, resource: str) -> int:
    return int(exact(node["status"]["allocatable"].get(resource, 0)))


def _has(node: Tree, resource: str) -> bool:
    capacity = exact(node["status"]["capacity"].get(resource, 0))
    return capacity > 0 or _offer(node, resource) > 0


def _absent_or_sick(node: Tree, asked: Mapping[str, int]) -> str | None:
    labels = node["metadata"]["labels"]
    is_faulted = labels.get(MIG_STATE, "success") != "success"
    # the first by which a pod is judged: whole GPUs, then slices
    main = min(asked, key=lambda name: (name not in (GPU, AMD), name))
    vendor = main.partition("/")[0]
    lacking = [name for name in asked if not _has(node, name)]
    if is_faulted and PRODUCT in labels and vendor == "nvidia.com":
        return ROWS[4]
    if any(name in (GPU, AMD) for name in lacking):
        if vendor == "nvidia.com" and any(_has(node, name) for name in SLICES):
            return ROWS[3]
        has_any = any(_has(node, name) for name in (GPU, AMD, *SLICES))
        return ROWS[2] if has_any else ROWS[1]
    if lacking:
        return ROWS[2]
    if is_faulted or any(not _offer(node, name) for name in asked):
        return ROWS[4]
    return None


def _too_few(node: Tree, asked: Mapping[str, int]) -> str | None:
    if any(_offer(node, name) < amount for name, amount in asked.items()):
        return ROWS[5]
    return None


@dataclass(frozen=True)
class _Card:
    """What labels say of the cards: names, GiB of one, how they are parted."""

    names: frozenset[str] | None
    gib: Fraction | None
    parts: int = 1
    profile_gib: int | None = None
    is_nominal: bool = False

    @property
    def is_whole(self) -> bool:
        return self.parts == 1 and self.profile_gib is None


def _card(node: Tree) -> _Card:
    labels = node["metadata"]["labels"]
    if PRODUCT not in labels:
        return _Card(None, None)
    product: str = labels[PRODUCT]
    profile_gib = None
    if "-MIG-" in product:
        product, _, profile = product.partition("-MIG-")
        profile_gib = int(profile.partition(".")[2].removesuffix("gb"))
    parts = 1
    if product.endswith("-SHARED"):
        product = product.removesuffix("-SHARED")
        parts = int(labels[REPLICAS])
    names, gib = PRODUCTS[product]
    if gib is not None:
        return _Card(names, Fraction(gib), parts, profile_gib, is_nominal=True)
    stated = labels.get(MEMORY)
    size = None if stated is None else Fraction(stated) * 2**20 / GIB
    return _Card(names, size, parts, profile_gib)


def _unsuitable(node: Tree, pod: Tree, asked: Mapping[str, int]) -> str | None:
    labels = node["metadata"]["labels"]
    wanted = (pod["spec"].get("nodeSelector") or {}).get("accelerator")
    if wanted is not None and labels.get("accelerator") != wanted:
        return ROWS[6]
    annotations = pod["metadata"].get("annotations") or {}
    types = [part.strip().lower() for part in annotations.get(TYPE, "").split(",")]
    excluded = {part[1:] for part in types if part.startswith("!")}
    accepted = {part for part in types if part and not part.startswith("!")}
    least = annotations.get(MIN_MEMORY)
    card = _card(node)
    is_choosy = bool(accepted or excluded or least or is_exclusive(pod))
    takes_parts = annotations.get(SHARING) == "allowed"
    if GPU in asked and is_choosy and not (takes_parts or card.is_whole):
        return ROWS[6]
    if accepted or excluded:
        if card.names is None:
            return ROWS[7]
        if card.names & excluded or (accepted and not card.names & accepted):
            return ROWS[6]
    if least is None:
        return None
    return _short_of_memory(card, exact(least) / GIB, asked)


def _short_of_memory(
    card: _Card, least: Fraction, asked: Mapping[str, int]
) -> str | None:
    sizes: list[Fraction | None] = [
        Fraction(SLICES[name]) for name in asked if name in SLICES
    ]
    need = least
    if GPU in asked:
        if card.profile_gib is not None:
            sizes.append(Fraction(card.profile_gib))
        elif card.gib is None:
            sizes.append(None)
        else:
            sizes.append(card.gib / card.parts)
            if not card.is_nominal and card.is_whole:
                need = least * Fraction(93, 100)
    if AMD in asked:
        sizes.append(None)
    if any(size is not None and size < need for size in sizes):
        return ROWS[8]
    return ROWS[7] if None in sizes else None


COMPATIBLE: Final = {
    "nvidia-tesla-v100": {"nvidia-tesla-a100"},
    "nvidia-tesla-a100": {"nvidia-tesla-v100"},
    "nvidia-tesla-t4": {"nvidia-rtx-3080", "nvidia-rtx-3090"},
}


def classic(
    nodes: Iterable[Tree], pods: Sequence[Tree], pod: Tree, names: Iterable[str]
) -> dict[str, int]:
    """Return what prioritize answers for a pod that asks whole GPUs."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    names = list(names)
    totals = {
        name: _classic_total(by_name[name], pods, pod)
        for name in names
        if name in by_name
    }
    found = dict.fromkeys(names, 0)
    if totals:
        low, high = min(totals.values()), max(totals.values())
        for name, total in totals.items():
            step = 100 if low == high else (total - low) * 100 // (high - low)
            found[name] = (step + 5) // 10
    return found


def _classic_total(node: Tree, pods: Sequence[Tree], pod: Tree) -> int:
    labels = node["metadata"]["labels"]
    total = _offer(node, GPU)
    used = sum(
        takes(other)[GPU]
        for other in pods
        if other["spec"].get("nodeName") == node["metadata"]["name"]
        and not is_over(other)
        and other["metadata"]["uid"] != pod["metadata"]["uid"]
    )
    wanted = (pod["spec"].get("nodeSelector") or {}).get("accelerator")
    has = labels.get("accelerator")
    if wanted is None:
        type_match = 50
    elif has == wanted:
        type_match = 100
    else:
        type_match = 70 if has in COMPATIBLE.get(wanted, ()) else 0
    is_linked = takes(pod)[GPU] <= 1 or labels.get("gpu-interconnect") == "nvlink"
    topology = 100 if is_linked else 50
    return (
        50
        + int(_classic_utilization(used, total) * 0.4)
        + int(type_match * 0.3)
        + int(topology * 0.3)
    )


def _classic_utilization(used: int, total: int) -> int:
    if total == 0:
        return 0
    u = min(used / total, 1.0)
    if 0.6 <= u <= 0.8:
        return 100
    return int(u * 100 / 0.6) if u < 0.6 else int((1.0 - u) * 100 / 0.2)
