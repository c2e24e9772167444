"""A pod that is reviewed again is left as it is, whatever the rules say."""

import copy
import json
from dataclasses import replace
from typing import Any, Final

import jsonpatch
from hypothesis import event, given
from hypothesis import strategies as st

from cluster.decode.gpu_requirements import GpuRequirementsReader
from injector.admission import Admission
from injector.affinity.step import AffinityStep, KnownGpus
from injector.fallback.chains import Chains
from injector.fallback.fallback import Fallback
from injector.fallback.holds import Holds
from injector.resources.inject import ExistingMode
from injector.review import decode_review
from injector.rules.file import RulesError, parse_rules
from injector.steps import SchedulerStep, TolerationStep
from scoring.gpu.models import default_table
from scoring.gpu.node_gpus import GpuLabelRules
from scoring.resources import ResourceScope
from tests.builders import make_node
from tests.defaults import (
    FALLBACK_OPTIONS,
    GPU_ANNOTATIONS,
    HOLD_SECONDS,
    RULE_CONTEXT,
    SETTINGS,
)
from tests.fakes.admissions import Admissions
from tests.fakes.webhook import (
    TRIGGER,
    CountingObserver,
    container,
    make_admission,
    make_pod,
    make_review,
)

CHAIN: Final = ("nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu")
GPUS: Final = ("nvidia.com/gpu", "nvidia.com/mig-2g.20gb", "x.com/gpu")
MORE: Final = (
    *CHAIN,
    "x.com/gpu",
    "x.com/core",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
)
SCOPE: Final = ResourceScope(
    ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "amd.com/gpu"),
    ("nvidia.com/", "amd.com/"),
)
NAMES: Final = FALLBACK_OPTIONS.annotations
DEMANDS: Final = GPU_ANNOTATIONS
CONTEXT: Final = replace(
    RULE_CONTEXT,
    decisions=frozenset({NAMES.mark, NAMES.record, NAMES.opt_out, *DEMANDS.names}),
    falling=frozenset(CHAIN[:-1]),
)
FILLED: Final = (
    "LimitRanger plugin set: cpu, memory request for container a; cpu limit for"
    " container b"
)

entries = st.dictionaries(
    st.sampled_from(["cpu", "memory", *MORE]),
    st.sampled_from([0.4, 1, 2.5]),
    max_size=3,
).map(lambda found: [{"name": name, "coefficient": per} for name, per in found.items()])
annotations = st.dictionaries(
    st.sampled_from(
        [
            *(TRIGGER, NAMES.mark, NAMES.record, NAMES.opt_out, NAMES.sharing),
            *(DEMANDS.gpu_type, DEMANDS.min_memory, "kubernetes.io/limit-ranger"),
            *("kubernetes.io/config.source", "plain", "x/y"),
        ]
    ),
    st.sampled_from(["V100", "never", "allowed", "", FILLED, "api", "file", "40Gi"]),
    max_size=2,
)
rules = st.fixed_dictionaries(
    {
        "resourceList": entries,
        "annotations": annotations,
    }
)
types = st.dictionaries(
    st.sampled_from(["V100", "T4"]),
    st.dictionaries(st.sampled_from([*GPUS, "x.com/core"]), rules, max_size=2),
    max_size=2,
)
rule_files = st.fixed_dictionaries(
    {
        "resourceMap": types,
        "namespaceResourceMap": st.dictionaries(
            st.sampled_from(["ml", "default"]), types, max_size=2
        ),
        "namespaceWhiteList": st.lists(st.just("ml"), max_size=1),
    }
)

amounts = st.dictionaries(
    st.sampled_from([*MORE, "cpu", "memory"]), st.sampled_from(["1", "2"]), max_size=3
)
gpu_amounts = st.builds(
    lambda gpu, count, more: {**more, gpu: count},
    st.sampled_from(GPUS),
    st.sampled_from(["1", "2"]),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.just("1"), max_size=1),
)
resources = st.fixed_dictionaries(
    {}, optional={"requests": amounts, "limits": gpu_amounts | amounts}
)
pods = st.builds(
    lambda a, b, gpu_type, more, namespace: make_pod(
        container("a", a),
        container("b", b),
        gpu_type=gpu_type,
        annotations=more,
        metadata={"namespace": namespace},
    ),
    st.fixed_dictionaries({"limits": gpu_amounts}, optional={"requests": amounts}),
    resources,
    st.sampled_from(["V100", "V100", "T4"]),
    st.dictionaries(
        st.sampled_from(
            [
                *(NAMES.opt_out, NAMES.sharing, DEMANDS.gpu_type, "plain"),
                *(DEMANDS.min_memory, "kubernetes.io/limit-ranger"),
            ]
        ),
        st.sampled_from(["never", "allowed", "A100", FILLED, "!", "10"]),
        max_size=2,
    ),
    st.sampled_from(["ml", "default", "kube-system"]),
)


def build_admission(text: str, existing: ExistingMode) -> Admission:
    """Return the whole webhook, every step switched on, over a small cluster."""
    accepted = parse_rules(text, "rules", context=CONTEXT)
    cell = Admissions(
        nodes=[
            make_node(name="w", gpus=4, labels={"accelerator": "A100"}),
            make_node(name="t", gpus=4, labels={"accelerator": "T4"}),
            make_node(name="s", resources={CHAIN[1]: "2"}),
        ]
    ).cell
    demands, known = (
        GpuRequirementsReader(DEMANDS),
        KnownGpus(cell, GpuLabelRules(default_table())),
    )
    options = replace(
        FALLBACK_OPTIONS,
        chains=Chains((CHAIN,)),
        gpu_reader=demands,
        require_gpus=known.require,
    )
    return make_admission(
        lambda: accepted,
        CountingObserver(),
        existing=existing,
        fallback=Fallback(Holds(cell, hold_seconds=HOLD_SECONDS), options),
        steps=(
            SchedulerStep(SCOPE, "gpu", SETTINGS.injection.scheduler_opt_out_label),
            TolerationStep(SCOPE),
            AffinityStep(known, demands, SCOPE),
        ),
    )


@given(rule_files, pods, st.sampled_from(["overwrite", "keep"]))
def test_a_second_review_finds_nothing_to_do(
    rule_file: dict[str, Any], pod: dict[str, Any], existing: ExistingMode
) -> None:
    try:
        admission = build_admission(json.dumps(rule_file), existing)
    except RulesError:
        event("refused rules")
        return
    namespace = pod["metadata"]["namespace"]

    first = admission.decide(review_of(pod, namespace))
    event(f"first {bool(first.patch)} {first.is_allowed}")
    if not first.patch:
        return
    patched = jsonpatch.apply_patch(copy.deepcopy(pod), json.loads(first.patch))
    second = admission.decide(review_of(patched, namespace))

    assert (second.is_allowed, second.patch) == (True, b"")


def review_of(pod: dict[str, Any], namespace: str) -> Any:
    return decode_review(json.dumps(make_review(pod, namespace=namespace)).encode())
