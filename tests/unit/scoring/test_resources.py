import pytest

from scoring.resources import MAX_REMEMBERED, Remembered, is_whole_gpu
from tests.builders import SCOPE


@pytest.mark.parametrize(
    ("resource", "is_gpu", "is_managed"),
    [
        pytest.param("nvidia.com/gpu", True, True, id="whole GPUs"),
        pytest.param("nvidia.com/gpu.shared", True, True, id="shared GPUs"),
        pytest.param("nvidia.com/mig-1g.10gb", True, True, id="MIG slice"),
        pytest.param("amd.com/gpu", True, True, id="AMD"),
        pytest.param("nvidia.com/gpumem", False, True, id="memory of a GPU"),
        pytest.param("cpu", False, False, id="cpu"),
        pytest.param("memory", False, False, id="memory"),
        pytest.param("ephemeral-storage", False, False, id="storage"),
        pytest.param("pods", False, False, id="pods"),
        pytest.param("hugepages-2Mi", False, False, id="huge pages"),
        pytest.param("example.com/fpga", False, False, id="other device"),
        pytest.param("nvidia.com", False, False, id="prefix without slash"),
    ],
)
def test_the_scope_says_which_resources_are_looked_at(
    resource: str, is_gpu: bool, is_managed: bool
) -> None:
    assert SCOPE.is_gpu(resource) is is_gpu
    assert SCOPE.is_managed(resource) is is_managed


def test_slices_and_shares_are_no_whole_gpus() -> None:
    names = ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu.shared", "cpu"]

    assert [is_whole_gpu(name) for name in names] == [True, True, False, False]


def test_remembered_names_have_an_end() -> None:
    calls: list[str] = []

    def is_long(name: str) -> bool:
        calls.append(name)
        return len(name) > 1

    remembered = Remembered(is_long)
    answers = [remembered[str(number)] for number in range(MAX_REMEMBERED + 1)]

    assert answers[:2] == [False, False]
    assert answers[10:] == [True] * (MAX_REMEMBERED - 9)
    assert len(remembered) == 1
    assert remembered[str(MAX_REMEMBERED)]
    assert len(calls) == MAX_REMEMBERED + 1


def test_no_name_is_remembered_that_kubernetes_would_not_take() -> None:
    remembered = Remembered(SCOPE.is_gpu)

    assert not remembered["x" * 1_000_000]
    assert not remembered
