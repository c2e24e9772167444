import json
from pathlib import Path
from typing import Final

import pytest

from scoring.gpu.requirements import is_askable
from service.commands.check_config import find_faults
from service.settings.settings import Settings, SettingsError, read_settings

FILE_SOURCE: Final = "cluster: {source: file, files: [dump.yaml]}\n"


def faults_of(folder: Path, text: str) -> list[str]:
    file = folder / "config.yaml"
    file.write_text(FILE_SOURCE + text)
    with pytest.raises(SettingsError) as caught:
        read_settings(file)
    return [str(fault) for fault in caught.value.faults]


def test_models_and_names_are_added(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        FILE_SOURCE
        + """
gpuTypes:
  typeLabels: [our/gpu]
  aliases: {A100: [big-green], Acme: [any-acme]}
  models:
    Acme-1: {memory: 48Gi, names: [acme_one], families: [Acme], unified: true}
"""
    )

    rules = read_settings(file).gpu_types.rules()

    assert rules.type_labels == ("our/gpu",)
    assert rules.table.models["Acme-1"].memory == 48 * 2**30
    assert rules.table.models["Acme-1"].is_unified
    assert rules.table.find("any acme") == {"Acme-1"}
    assert rules.table.find("big-green") == rules.table.find("A100")


def test_all_names_that_two_models_share_are_told_at_once(tmp_path: Path) -> None:
    text = """
gpuTypes:
  aliases: {T4: [NVIDIA-L4]}
  models:
    One: {memory: 8Gi, names: [same]}
    Two: {memory: 8Gi, names: [Same, a100]}
fallback:
  chains: [[nvidia.com/mig-1g.10gb, nvidia.com/mig-1g.10gb]]
"""
    faults = faults_of(tmp_path, text)

    assert [fault for fault in faults if fault.startswith("gpuTypes")] == [
        "gpuTypes: name 'Same' is shared by One and Two",
        "gpuTypes: name 'a100' is shared by A100 and Two",
        "gpuTypes: name 'NVIDIA-L4' is shared by L4 and T4",
    ]
    assert len(faults) == 4
    (message,) = find_faults(tmp_path / "config.yaml")
    assert all(fault in message for fault in faults)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "aliases: {A100: [H100], H100: [A100]}",
            [
                "name 'H100' is shared by H100 and A100",
                "name 'A100' is shared by A100 and H100",
            ],
            id="of two models",
        ),
        pytest.param(
            "aliases: {Big: [Small], Small: [Big]}",
            [
                "name 'Small' is for 'Big', which is no model and no family",
                "name 'Big' is for 'Small', which is no model and no family",
            ],
            id="of names that nobody knows",
        ),
        pytest.param(
            "models: {One: {memory: 8Gi, families: [Two]},"
            " Two: {memory: 8Gi, families: [One]}}",
            [
                "name 'Two' is that of a model and of a family",
                "name 'One' is that of a model and of a family",
            ],
            id="of families",
        ),
    ],
)
def test_a_loop_of_names_is_a_fault_with_each_of_them(
    tmp_path: Path, text: str, faults: list[str]
) -> None:
    found = faults_of(tmp_path, f"gpuTypes: {{{text}}}")

    assert found == [f"gpuTypes: {fault}" for fault in faults]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("models: {One: {memory: much}}", "quantity 'much'", id="no size"),
        pytest.param("models: {One: {memory: '0'}}", "wanted an amount", id="size 0"),
        pytest.param("models: {One: {}}", "models.One.memory: Field", id="no memory"),
        pytest.param("typeLabels: ['a*b']", "typeLabels.0: ", id="a star inside"),
    ],
)
def test_a_faulty_value_is_told_with_its_path(
    tmp_path: Path, text: str, fault: str
) -> None:
    (found,) = faults_of(tmp_path, f"gpuTypes: {{{text}}}")

    assert found.startswith("gpuTypes.")
    assert fault in found


@pytest.mark.parametrize("name", ["a,b", "Foo!", "!Foo", "-", "\u00e9"])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("models: {{{0}: {{memory: 8Gi}}}}", id="a model"),
        pytest.param("models: {{One: {{memory: 8Gi, names: [{0}]}}}}", id="a name"),
        pytest.param("models: {{One: {{memory: 8Gi, families: [{0}]}}}}", id="family"),
        pytest.param("aliases: {{{0}: [b]}}", id="what an alias is for"),
        pytest.param("aliases: {{A100: [{0}]}}", id="an alias"),
    ],
)
def test_a_name_that_no_annotation_can_ask_for_is_a_fault(
    tmp_path: Path, text: str, name: str
) -> None:
    (found,) = faults_of(tmp_path, f"gpuTypes: {{{text.format(json.dumps(name))}}}")

    assert found.startswith("gpuTypes.")
    assert "wanted a name that a pod can ask for" in found
    assert found.endswith(f"got {name!r}")


def test_every_name_of_the_package_can_be_asked_for() -> None:
    spellings = Settings().gpu_types.rules().table.spellings

    assert all(is_askable(name) for names in spellings.values() for name in names)


def test_sharing_and_the_rule_key_are_named_where_they_were_before() -> None:
    settings = Settings()
    names = settings.demand_annotations.annotations("our/sharing", "our/key")

    assert (names.sharing, names.rule_key) == ("our/sharing", "our/key")
    assert not names.is_rule_key_filter
