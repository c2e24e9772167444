"""The affinity that is written keeps out no node that the filter would take."""

import copy
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st

from cluster.decode.objects import NodeRecord, Pod
from cluster.decode.records import constraints_of
from injector.affinity.terms import (
    MAX_TERMS,
    add_node_selector_terms,
    build_node_selector_terms,
)
from scoring.eligibility import is_eligible
from scoring.gpu.affinity import RequestedGpus, required_terms
from scoring.gpu.models import GIB, default_table
from scoring.gpu.node_gpus import (
    DEFAULT_MEMORY_LABELS,
    DEFAULT_TYPE_LABELS,
    GpuLabelRules,
)
from scoring.gpu.node_labels import GpuLabels, LabelledGpus, label_values
from scoring.gpu.requirements import GpuRequirements
from scoring.gpu.suitability import Suitability, suitability
from tests.builders import make_node_record

RULES: Final = GpuLabelRules(default_table())
TABLE: Final = RULES.table
LABELS: Final = GpuLabels(RULES)
PRODUCT: Final = "nvidia.com/gpu.product"
MODELS: Final = sorted(TABLE.models)
WORDS: Final = sorted(
    {name for m in TABLE.models.values() for name in (m.name, *m.families)}
)
SPELLINGS: Final = sorted({one for many in TABLE.spellings.values() for one in many})
MORE: Final = {
    "nvidia.com/gpu.replicas": ["0", "1", "4"],
    "nvidia.com/gpu.sharing-strategy": ["none", "mps"],
    "cloud.google.com/gke-gpu-partition-size": ["1g.5gb", "7g.80gb"],
    "nvidia.com/gpu.count": ["1", "8"],
}
# One, so that nodes and requirements meet often, and every model now and then.
FEW: Final = ["H100", "A100-80GB", "A100", "V100-SXM2-16GB", "L4", "MI300X", "my-card"]

words = st.sampled_from(FEW) | st.sampled_from(WORDS)
stated = st.one_of(
    words,
    st.sampled_from(["NVIDIA-H100-80GB-HBM3", "nvidia-tesla-a100", "Tesla-V100", "T4"]),
    st.sampled_from(["nvidia", "true", "-", "pool_7"]),
    st.sampled_from(SPELLINGS).map(lambda name: f"NVIDIA-{name}"),
    st.builds(
        lambda name, mark: name + mark,
        words,
        st.sampled_from(["-SHARED", "-MIG-1g.10gb", "-MIG-3g.40gb-SHARED"]),
    ),
)
type_keys = st.sampled_from(
    [PRODUCT, "accelerator", "cloud.google.com/gke-accelerator"]
) | st.sampled_from(DEFAULT_TYPE_LABELS).map(
    lambda key: key.replace("*", "Instinct_MI300X")
)
sizes = st.sampled_from(
    ["5722", "15360", "23034", "24", "40960", "81559", "24G", "192G", "x"]
)
any_labels = st.builds(
    lambda types, memory, more: {**types, **memory, **more},
    st.dictionaries(type_keys, stated, max_size=3),
    st.dictionaries(st.sampled_from(DEFAULT_MEMORY_LABELS), sizes, max_size=1),
    st.fixed_dictionaries(
        {}, optional={key: st.sampled_from(values) for key, values in MORE.items()}
    ),
)
gpu_requirements = st.builds(
    GpuRequirements,
    types=st.lists(words, max_size=3).map(tuple),
    excluded=st.lists(words, max_size=2).map(tuple),
    min_memory=st.sampled_from([0, 0, 24, 40, 80, 200]).map(lambda gib: gib * GIB),
    is_sharing_allowed=st.booleans(),
)
requests = st.sampled_from(
    [
        (("nvidia.com/gpu", 1),),
        (("nvidia.com/gpu", 1),),
        (("nvidia.com/mig-3g.40gb", 1),),
        (("nvidia.com/gpu.shared", 1),),
        (("amd.com/gpu", 1),),
    ]
)
values = st.lists(stated, min_size=1, max_size=2)
expressions = st.builds(
    lambda key, operator, items: {"key": key, "operator": operator, "values": items},
    type_keys,
    st.sampled_from(["In", "NotIn"]),
    values,
) | st.builds(
    lambda key, operator: {"key": key, "operator": operator},
    type_keys,
    st.sampled_from(["Exists", "DoesNotExist"]),
)
names = st.builds(
    lambda name: {"key": "metadata.name", "operator": "In", "values": [name]},
    st.sampled_from(["n0", "n1", "late"]),
)
terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(expressions, max_size=2),
        "matchFields": st.lists(names, max_size=1),
    },
)
specs = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"nodeSelector": st.dictionaries(type_keys, stated, max_size=1)}
    ),
    st.lists(terms, max_size=3).map(
        lambda items: {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": items
                    }
                }
            }
        }
    ),
)


def make_nodes(labels: Sequence[dict[str, str]]) -> list[NodeRecord]:
    return [
        make_node_record(
            {
                "metadata": {"name": f"n{number}", "labels": own},
                "status": {
                    "capacity": {"nvidia.com/gpu": "4"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        for number, own in enumerate(labels)
    ]


def kinds_of(nodes: Sequence[NodeRecord]) -> list[LabelledGpus]:
    return list(dict.fromkeys(map(LABELS.kind_of, nodes)))


def write(
    spec: dict[str, Any], wish: RequestedGpus, nodes: Sequence[NodeRecord]
) -> bool:
    """Write what the wish is, where these nodes are known."""
    alternatives = required_terms(RULES, wish, kinds_of(nodes))
    return add_node_selector_terms(spec, build_node_selector_terms(alternatives))


def takes(node: NodeRecord, wish: RequestedGpus) -> bool:
    found = suitability(node.gpus, wish.gpu_requirements, wish.request)
    return found is Suitability.SUITS


def admits(spec: dict[str, Any], node: NodeRecord) -> bool:
    """Whether kube-scheduler would let a pod with this spec onto the node."""
    return is_eligible(node, constraints_of(msgspec.convert({"spec": spec}, Pod)))


@given(st.lists(any_labels, max_size=6), specs, gpu_requirements, requests)
def test_known_nodes_that_the_filter_takes_stay_open_and_none_is_opened(
    labels: list[dict[str, str]],
    before: dict[str, Any],
    gpu_requirements: GpuRequirements,
    request: Any,
) -> None:
    nodes, wish = make_nodes(labels), RequestedGpus(gpu_requirements, request)
    after = copy.deepcopy(before)

    is_written = write(after, wish, nodes)

    event(f"written {is_written and after != before}")
    for node in nodes:
        if takes(node, wish):
            event(f"taken, open before: {admits(before, node)}")
            assert admits(after, node) == admits(before, node)
        else:
            assert admits(before, node) or not admits(after, node)


@st.composite
def consistent_labels(draw: st.DrawFn) -> dict[str, str]:
    """One model as its labels' writers write it, under one or several labels."""
    model = TABLE.models[draw(st.sampled_from(MODELS))]
    labels = {}
    for label in draw(
        st.lists(st.sampled_from(DEFAULT_TYPE_LABELS), min_size=1, max_size=2)
    ):
        name = draw(st.sampled_from([model.name, *model.names, *model.families]))
        found = label_values(label, name, [model.vendor])
        # Under a label of a cloud a name can be another model's.
        means_it = model.name in TABLE.find(name, label)
        if found and means_it and label.endswith("*"):
            labels[label[:-1] + found[0]] = "1"
        elif found and means_it:
            labels[label] = draw(st.sampled_from(found))
    if draw(st.booleans()):
        labels["nvidia.com/gpu.memory"] = str(model.memory // 2**20 * 97 // 100)
    return labels


@given(
    st.lists(consistent_labels(), max_size=4),
    consistent_labels(),
    gpu_requirements,
    requests,
)
def test_a_node_that_comes_later_is_open_too_if_it_is_labelled_as_usual(
    seen: list[dict[str, str]],
    late: dict[str, str],
    gpu_requirements: GpuRequirements,
    request: Any,
) -> None:
    known, (node,) = make_nodes(seen), make_nodes([late])
    wish = RequestedGpus(gpu_requirements, request)
    assume(takes(node, wish))
    spec: dict[str, Any] = {}

    write(spec, wish, known)

    event(f"written {bool(spec)}")
    assert admits(spec, node)


@given(
    st.sampled_from(MODELS),
    st.sampled_from(MODELS),
    st.booleans(),
    requests.filter(len),
)
def test_a_model_is_kept_off_exactly_the_nodes_of_the_others(
    wanted: str, other: str, is_known: bool, request: Any
) -> None:
    node, *_ = make_nodes([{"accelerator": other}])
    wish = RequestedGpus(GpuRequirements(types=(wanted,)), request)
    spec: dict[str, Any] = {}

    write(spec, wish, [node] if is_known else [])

    assert admits(spec, node) == (wanted == other)


@given(st.lists(any_labels, max_size=6), specs, gpu_requirements, requests)
def test_what_was_written_is_recognised(
    labels: list[dict[str, str]],
    before: dict[str, Any],
    gpu_requirements: GpuRequirements,
    request: Any,
) -> None:
    spec = copy.deepcopy(before)
    wish = RequestedGpus(gpu_requirements, request)
    alternatives = required_terms(RULES, wish, kinds_of(make_nodes(labels)))
    wanted = build_node_selector_terms(alternatives)
    is_written = add_node_selector_terms(spec, wanted)
    once = copy.deepcopy(spec)

    assert add_node_selector_terms(spec, wanted) == is_written
    assert spec == once
    assert len(alternatives) <= MAX_TERMS
