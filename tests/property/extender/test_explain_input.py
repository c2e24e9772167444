"""Whatever is posted to ``/explain`` is refused with its faults, or explained."""

import json
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.feasibility import REASONS
from tests.builders import make_node, make_pod
from tests.extender_app import ExtenderApp

APP: Final = ExtenderApp(
    nodes=[
        make_node(name="a", gpus=8, labels={"accelerator": "t4", "zone": "z"}),
        make_node(name="b", gpus=0, capacity={"nvidia.com/gpu": "4"}),
        make_node(name="c", resources={"nvidia.com/mig-1g.10gb": "7"}),
        make_node(
            name="d", gpus=2, taints=[{"key": "k", "value": "v", "effect": "NoExecute"}]
        ),
    ],
    pods=[make_pod(name="bound", gpus=3, node_name="a")],
)
TEXTS: Final = {reason.text for reason in REASONS.values()}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def mostly(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a sound value, now and then anything at all in its place."""
    return st.integers(0, 19).flatmap(lambda roll: sound if roll else anything)


def objects(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return an object with some of these keys."""
    return mostly(st.fixed_dictionaries({}, optional=keys))


quantities = mostly(st.sampled_from(["0", "1", "2", "9", "500m", "1e99", "1.5Gi", 3]))
amounts = objects(
    **{
        "cpu": quantities,
        "memory": quantities,
        "nvidia.com/gpu": quantities,
        "nvidia.com/mig-1g.10gb": quantities,
    }
)
resources = objects(requests=amounts, limits=amounts)
container = objects(
    name=st.just("c"), resources=resources, ports=mostly(st.just([{"hostPort": 1}]))
)
words = mostly(st.sampled_from(["t4", "z", "a", "x", ""]))
requirement = objects(
    key=st.sampled_from(["zone", "metadata.name"]),
    operator=mostly(st.sampled_from(["In", "NotIn", "Exists", "Gt"])),
    values=mostly(st.lists(words, max_size=2)),
)
terms = objects(
    matchExpressions=mostly(st.lists(requirement, max_size=2)),
    matchFields=mostly(st.lists(requirement, max_size=1)),
)
required = objects(nodeSelectorTerms=mostly(st.lists(terms, max_size=2)))
spec = objects(
    containers=mostly(st.lists(container, min_size=1, max_size=3)),
    initContainers=mostly(st.lists(container, max_size=2)),
    nodeSelector=objects(accelerator=words, zone=words),
    affinity=objects(
        nodeAffinity=objects(requiredDuringSchedulingIgnoredDuringExecution=required),
        podAffinity=anything,
    ),
    tolerations=mostly(
        st.lists(objects(key=words, operator=words, value=words), max_size=2)
    ),
    overhead=amounts,
    nodeName=words,
    schedulingGates=anything,
    volumes=anything,
    topologySpreadConstraints=anything,
)
metadata = objects(
    name=words,
    namespace=words,
    uid=words,
    annotations=st.dictionaries(
        st.sampled_from(
            [
                "gpu-extender.io/gpu-type",
                "gpu-extender.io/min-gpu-memory",
                "gpu-extender.io/exclusive",
            ]
        ),
        mostly(st.sampled_from(["T4", "T4, !L4", "40Gi", "true", "?"])),
        max_size=3,
    ),
)
pods = mostly(
    st.fixed_dictionaries(
        {"spec": spec},
        optional={
            "kind": mostly(st.just("Pod")),
            "metadata": metadata,
            "status": objects(nominatedNodeName=words),
        },
    )
)
manifests = pods | objects(
    kind=st.sampled_from(["Deployment", "Job"]),
    metadata=metadata,
    spec=objects(template=pods),
)


@settings(max_examples=300)
@given(manifests)
def test_a_body_is_refused_or_explained(tree: Any) -> None:
    answer = APP.client.simulate_post(
        "/explain", body=json.dumps(tree).encode(), query_string="nodes=true"
    )

    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert answer.json["description"]
        return
    explained = answer.json
    assert sorted(node["name"] for node in explained["nodes"]) == ["a", "b", "c", "d"]
    for node in explained["nodes"]:
        verdict, sent = node["verdict"], node["priority"]
        assert verdict["feasible"] == (verdict["reason"] is None)
        assert verdict["feasible"] or verdict["reason"] in TEXTS
        assert verdict["detail"]
        assert node["scheduler"]["passes"] or node["scheduler"]["detail"]
        # Whoever is not offered, or refused, is not asked about.
        assert (sent is not None) == (node["offered"] and verdict["feasible"])
        assert sent is None or 0 <= sent <= 10
