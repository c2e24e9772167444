import pytest

from injector.fallback.chains import (
    Chains,
    find_chain_faults,
    short_name,
)
from scoring.resources import profile_memory_gib
from tests.builders import SCOPE

MIG_1G = "nvidia.com/mig-1g.10gb"
MIG_2G = "nvidia.com/mig-2g.20gb"
GPU = "nvidia.com/gpu"
NAME_WANTED = "wanted an extended resource such as 'nvidia.com/gpu', got "


def test_every_member_but_the_last_falls_along_the_rest() -> None:
    chains = Chains(((MIG_2G, MIG_1G, GPU),))

    assert chains.tail(MIG_2G) == (MIG_1G, GPU)
    assert chains.tail(MIG_1G) == (GPU,)
    assert chains.tail(GPU) == ()
    assert chains.tail("amd.com/gpu") == ()


def test_what_can_fall_comes_in_the_order_of_the_chains() -> None:
    chains = Chains(((MIG_2G, GPU), ("amd.com/half", "amd.com/gpu")))
    asked = {"cpu": 1, "amd.com/half": 1, "amd.com/gpu": 1, MIG_2G: 1}

    assert chains.in_order(asked) == [MIG_2G, "amd.com/half"]


@pytest.mark.parametrize(
    ("chains", "faults"),
    [
        pytest.param([], [], id="none"),
        pytest.param([[MIG_2G, GPU], ["amd.com/x", "amd.com/y"]], [], id="right"),
        pytest.param(
            [[GPU]],
            ["fallback.chains[0]: wanted 2 resources or more, got 1"],
            id="nowhere to fall to",
        ),
        pytest.param(
            [[]], ["fallback.chains[0]: wanted 2 resources or more, got 0"], id="empty"
        ),
        pytest.param(
            [[MIG_2G, GPU, MIG_2G]],
            [
                (
                    f"fallback.chains[0][2]: wanted each resource once, got {MIG_2G!r},"
                    " which is also fallback.chains[0][0]"
                )
            ],
            id="twice in a chain",
        ),
        pytest.param(
            [[MIG_2G, GPU], [MIG_1G, GPU]],
            [
                (
                    f"fallback.chains[1][1]: wanted each resource once, got {GPU!r},"
                    " which is also fallback.chains[0][1]"
                )
            ],
            id="in two chains",
        ),
        pytest.param(
            [["cpu", "gpu"], [f"{GPU} ", f"requests.{GPU}"]],
            [
                f"fallback.chains[0][0]: {NAME_WANTED}'cpu'",
                f"fallback.chains[0][1]: {NAME_WANTED}'gpu'",
                f"fallback.chains[1][0]: {NAME_WANTED}'nvidia.com/gpu '",
                f"fallback.chains[1][1]: {NAME_WANTED}'requests.nvidia.com/gpu'",
            ],
            id="names that are none, all of them",
        ),
        pytest.param(
            [["node.kubernetes.io/gpu", "a.b/" + "x" * 64]],
            [
                f"fallback.chains[0][0]: {NAME_WANTED}'node.kubernetes.io/gpu'",
                f"fallback.chains[0][1]: {NAME_WANTED}'a.b/{'x' * 64}'",
            ],
            id="reserved domain, and a long name",
        ),
        pytest.param(
            [[GPU, ".".join(["a" * 63] * 4) + "/gpu"]],
            [f"fallback.chains[0][1]: {NAME_WANTED}'{'.'.join(['a' * 63] * 4)}/gpu'"],
            id="a long domain",
        ),
    ],
)
def test_faults_of_chains(chains: list[list[str]], faults: list[str]) -> None:
    assert [str(fault) for fault in find_chain_faults(chains)] == faults


def test_a_member_that_nobody_counts_is_a_fault() -> None:
    faults = find_chain_faults(
        [[MIG_2G, "intel.com/gpu"]], scope=SCOPE, path="f.chains"
    )

    wanted = "wanted a resource that managedPrefixes or gpuResources cover"
    assert [str(fault) for fault in faults] == [
        f"f.chains[0][1]: {wanted}, got 'intel.com/gpu'"
    ]


def test_chains_with_faults_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"chains\[0\]: wanted 2"):
        Chains(((GPU,),))


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param("nvidia.com/mig-1g.5gb.me", "1g.5gb.me", id="slice"),
        pytest.param("nvidia.com/gpu.shared", "gpu.shared", id="share"),
        pytest.param("amd.com/gpu", "gpu", id="card"),
    ],
)
def test_name_in_records(resource: str, name: str) -> None:
    assert short_name(resource) == name


@pytest.mark.parametrize(
    ("resource", "memory"),
    [
        pytest.param("nvidia.com/mig-7g.141gb", 141, id="whole"),
        pytest.param("nvidia.com/mig-1g.5gb.me", 5, id="with an attribute"),
        pytest.param("nvidia.com/mig-1c.3g.20gb", 20, id="part of the compute slices"),
        pytest.param("nvidia.com/mig-1g", 0, id="no memory"),
        pytest.param("nvidia.com/mig-1g.5gbx", 0, id="something else"),
        pytest.param("nvidia.com/gpu", 0, id="card"),
    ],
)
def test_memory_of_a_profile(resource: str, memory: int) -> None:
    assert profile_memory_gib(resource) == memory
