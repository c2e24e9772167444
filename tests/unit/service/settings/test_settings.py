import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pydantic
import pytest

from scoring.gpu.models import default_table
from scoring.packing.learning import ExpectedShape
from scoring.packing.shapes import Shape
from service.commands.check_config import find_faults
from service.settings.settings import Settings, SettingsError, read_settings
from tests.older_version import older_version, read_older

ROOT: Final = Path(__file__).parents[4]
SCHEMA: Final = ROOT / "configs" / "settings.schema.json"
PAGE: Final = ROOT / "docs" / "configuration.md"
VALUES: Final = ROOT / "deploy" / "chart" / "values.schema.json"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration file to be written."""
    return tmp_path / "config.yaml"


def faults_of(file: Path, text: str) -> list[str]:
    """Return the faults of a configuration."""
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_settings(file)
    return [str(fault) for fault in caught.value.faults]


# --- sound files -------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "{}"])
def test_an_empty_file_has_the_defaults(file: Path, text: str) -> None:
    file.write_text(text)

    assert read_settings(file) == Settings()


@pytest.mark.parametrize("memory", ["nps1", "nps2", "nps4", "nps8"])
@pytest.mark.parametrize("compute", ["spx", "dpx", "tpx", "qpx", "cpx"])
def test_partitions_of_amd_are_gpus_by_default(compute: str, memory: str) -> None:
    assert Settings().scope().is_gpu(f"amd.com/{compute}_{memory}")


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings()

    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8888)
    assert settings.webhook.port == 8443
    assert settings.cluster.source == "kubernetes"
    assert settings.cluster.read_timeout_seconds == 90
    assert settings.gpu_resources == (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-*",
        "amd.com/gpu",
        "amd.com/spx_*",
        "amd.com/dpx_*",
        "amd.com/tpx_*",
        "amd.com/qpx_*",
        "amd.com/cpx_*",
    )
    assert settings.managed_prefixes == ("nvidia.com/", "amd.com/")
    assert settings.scoring.weights.model_dump() == {
        "utilization": 40,
        "type_match": 30,
        "topology": 30,
        "fragmentation": 0,
        "scarcity": 0,
        "domain": 0,
        "mig": 0,
    }
    assert settings.scoring.max_score == 10
    assert settings.fallback.hold_seconds == 10


@pytest.mark.parametrize(
    ("text", "weights", "normalize", "strategy"),
    [
        pytest.param("{}", (40, 0), "minMax", "target", id="the classic one"),
        pytest.param("{profile: packing}", (0, 100), "rank", "target", id="packing"),
        pytest.param("{profile: spread}", (60, 0), "rank", "spread", id="spread"),
        pytest.param(
            "{profile: packing, weights: {utilization: 7}}",
            (7, 100),
            "rank",
            "target",
            id="a weight of one's own",
        ),
        pytest.param(
            "{profile: spread, normalize: absolute, strategy: binpack,"
            " weights: {utilization: 0}}",
            (0, 0),
            "absolute",
            "binpack",
            id="all of one's own",
        ),
    ],
)
def test_a_profile_says_what_the_file_does_not(
    file: Path, text: str, weights: tuple[int, int], normalize: str, strategy: str
) -> None:
    file.write_text(f"scoring: {text}\n")

    scoring = read_settings(file).scoring

    found = scoring.weights.utilization, scoring.weights.fragmentation
    assert found == weights
    assert (scoring.normalize, scoring.strategy) == (normalize, strategy)


def test_expected_pods_of_one_shape_add_up(file: Path) -> None:
    file.write_text(
        "scoring:\n  profile: packing\n  expectedPods:\n"
        "  - {gpus: 8, cpuMillicores: 64000, types: [H100, A100-80GB], weight: 2}\n"
        "  - {gpus: 8, cpuMillicores: 64000, types: [A100-80GB, H100]}\n"
        "  - {thousandths: 250}\n  - {gpus: 0}\n"
    )

    expected = read_settings(file).scoring.options(default_table()).expected

    assert expected is not None
    wanted = frozenset({"h100", "a100-80gb"})
    assert dict(expected.parts) == {
        ExpectedShape(Shape(64000, 8), wanted, is_whole=True): 3.0,
        ExpectedShape(Shape(0, 1, 250)): 1.0,
        ExpectedShape(Shape(0, 0)): 1.0,
    }
    assert Settings().scoring.options(default_table()).expected is None


@pytest.mark.parametrize(
    ("pod", "path"),
    [
        pytest.param("{gpus: 2, thousandths: 500}", "", id="parts of several"),
        pytest.param("{gpus: 17}", ".gpus", id="too many"),
        pytest.param("{thousandths: 0}", ".thousandths", id="nothing of one"),
        pytest.param("{weight: 0}", ".weight", id="that never comes"),
        pytest.param("{weight: .nan}", ".weight", id="no number"),
        pytest.param("{types: ['']}", ".types.0", id="no name"),
    ],
)
def test_expected_pods_that_cannot_be_are_faults(
    file: Path, pod: str, path: str
) -> None:
    faults = faults_of(file, f"scoring: {{expectedPods: [{pod}]}}\n")

    assert [f.partition(": ")[0] for f in faults] == [f"scoring.expectedPods.0{path}"]


def test_keys_are_camel_case_and_values_what_they_say(file: Path) -> None:
    file.write_text(
        "server: {port: 0, idleTimeoutSeconds: 100, drainSeconds: 2}\n"
        "cluster: {source: file, files: [a.yaml, b.json]}\n"
        "gpuResources: [nvidia.com/gpu]\n"
        "scoring: {weights: {typeMatch: 50}, targetUtilization: {low: 0.5}}\n"
    )

    settings = read_settings(file)

    assert settings.server.idle_timeout_seconds == 100
    assert settings.server.drain_seconds == 2.0
    assert settings.cluster.files == ("a.yaml", "b.json")
    assert settings.gpu_resources == ("nvidia.com/gpu",)
    assert settings.scoring.weights.type_match == 50
    assert settings.scoring.target_utilization.low == 0.5


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(ROOT.glob("configs/*.yaml"))
        if "cluster" not in path.stem
    ],
    ids=lambda path: path.name,
)
def test_a_shipped_configuration_and_its_files_are_sound(path: Path) -> None:
    assert find_faults(path) == []


def test_the_version_before_has_no_key_that_is_refused_now(file: Path) -> None:
    """Its file is read with each key written out, as its schema has it by default."""
    name = older_version()
    if name is None:
        pytest.skip(
            "the version before is not in this clone: git fetch --unshallow --tags"
        )
    schema = json.loads(read_older(name, "configs/settings.schema.json"))
    defaults = {key: value["default"] for key, value in schema["properties"].items()}
    assert "injection" in defaults
    file.write_text(json.dumps(defaults))

    read_settings(file)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8888"),
        ("localhost", "http://localhost:8888"),
        ("::1", "http://[::1]:8888"),
    ],
)
def test_the_address_of_the_listener_can_be_called(
    file: Path, host: str, url: str
) -> None:
    file.write_text(f"server: {{host: '{host}'}}\n")

    server = read_settings(file).server

    assert server.url() == url
    assert server.url(7) == url.replace("8888", "7")


# --- faulty files ------------------------------------------------------------


def test_all_faults_are_said_at_once_each_with_path_and_value(file: Path) -> None:
    text = """
        server: {port: 99999, maxInFlight: eight, host: 0.0.0.0, idleTimeoutSeconds: 90}
        webhook: {certificateFile: a.pem}
        cluster: {source: nowhere, pollSeconds: 0}
        gpuResources: nvidia.com/gpu
        managedPrefixes: [1]
        labels: {accelerator: null}
        faultSignals: {labels: {a: b}, conditions: {Ready: No}}
        extender: {counts: guess}
        scoring:
          profile: modern
          weights: {utilization: -1, typeMatch: 1.5}
          targetUtilization: {low: 0, high: 1}
          maxScore: 101
          compatibleTypes: [v100]
        injection: {existing: replace}
        fallback: {chains: [x], holdSeconds: -1}
        logging: {level: loud}
        extra: 1
    """

    faults = faults_of(file, text)

    assert dict(fault.split(": ", 1) for fault in faults) == {
        "server.port": "Input should be less than or equal to 65535, got 99999",
        "server.maxInFlight": "Input should be a valid integer, got 'eight'",
        "server.host": "wanted a loopback address, got '0.0.0.0'",
        "server.idleTimeoutSeconds": (
            "Input should be greater than or equal to 95, got 90"
        ),
        "webhook": "wanted certificateFile and keyFile together, got one",
        "cluster.source": "Input should be 'file' or 'kubernetes', got 'nowhere'",
        "cluster.pollSeconds": "Input should be greater than 0, got 0",
        "gpuResources": "Input should be a valid array, got 'nvidia.com/gpu'",
        "managedPrefixes.0": "Input should be a valid string, got 1",
        "labels.accelerator": "Input should be a valid string, got None",
        "faultSignals.labels.a": "Input should be a valid array, got 'b'",
        "faultSignals.conditions.Ready": (
            "Input should be 'True', 'False' or 'Unknown', got False"
        ),
        "extender.counts": "Input should be 'trust' or 'enforce', got 'guess'",
        "scoring.profile": (
            "Input should be 'classic', 'packing', 'spread' or 'training', got 'modern'"
        ),
        "scoring.weights.utilization": (
            "Input should be greater than or equal to 0, got -1"
        ),
        "scoring.weights.typeMatch": "Input should be a valid integer, got 1.5",
        "scoring.targetUtilization.low": "Input should be greater than 0, got 0",
        "scoring.targetUtilization.high": "Input should be less than 1, got 1",
        "scoring.maxScore": "Input should be less than or equal to 100, got 101",
        "scoring.compatibleTypes": "Input should be an object, got ['v100']",
        "injection.existing": "Input should be 'overwrite' or 'keep', got 'replace'",
        "fallback.chains.0": "Input should be a valid array, got 'x'",
        "fallback.holdSeconds": "Input should be greater than 0, got -1",
        "logging.level": (
            "Input should be 'debug', 'info', 'warning' or 'error', got 'loud'"
        ),
        "extra": "unknown key, got 1",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "cluster: {source: file}",
            "cluster: files: wanted at least one with source 'file' and none with"
            " 'kubernetes', got 0 with 'file'",
            id="file source without files",
        ),
        pytest.param(
            "cluster: {files: [a.yaml]}",
            "cluster: files: wanted at least one with source 'file' and none with"
            " 'kubernetes', got 1 with 'kubernetes'",
            id="files without the file source",
        ),
        pytest.param(
            "scoring: {weights: {utilization: 0, typeMatch: 0, topology: 0}}",
            "scoring.weights: wanted at least one weight above 0, got none",
            id="no weight at all",
        ),
        pytest.param(
            "scoring: {targetUtilization: {low: 0.9}}",
            "scoring.targetUtilization: wanted low <= high, got 0.9 > 0.8",
            id="bounds in the wrong order",
        ),
        pytest.param(
            "server: {host: example.com}",
            "server.host: wanted a loopback address, got 'example.com'",
            id="verbs off loopback",
        ),
        pytest.param(
            "type_match: 1",
            "type_match: unknown key, got 1",
            id="snake case",
        ),
        *[
            pytest.param(
                text,
                f"{path}: unknown key (did you mean {meant!r}?), got {got}",
                id=f"misspelt {path}",
            )
            for text, path, meant, got in [
                ("scorring: 1", "scorring", "scoring", 1),
                ("labels: {domain: 1}", "labels.domain", "domains", 1),
                (
                    "scoring: {weights: {fragmentaton: 3}}",
                    "scoring.weights.fragmentaton",
                    "fragmentation",
                    3,
                ),
                (
                    "scoring: {expectedPods: [{}, {weigth: 3}]}",
                    "scoring.expectedPods.1.weigth",
                    "weight",
                    3,
                ),
                (
                    "webhook: {selfSigned: {enable: true}}",
                    "webhook.selfSigned.enable",
                    "enabled",
                    True,
                ),
                (
                    "server: {conectionLimit: 3}",
                    "server.conectionLimit",
                    "connectionLimit",
                    3,
                ),
            ]
        ],
        pytest.param("- a", "file: Input should be an object, got ['a']", id="a list"),
        pytest.param("7", "file: Input should be an object, got 7", id="a number"),
        pytest.param(
            "2024-01-01: x",
            "keys must be str, int, float, bool or None, not datetime.date",
            id="a date as a key",
        ),
        pytest.param(
            "a: &a [*a]", "Circular reference detected", id="an anchor in itself"
        ),
        pytest.param(
            f"extra: '{'x' * 1000}'",
            f"extra: unknown key, got '{'x' * 76}...",
            id="a long value is cut",
        ),
    ],
)
def test_a_fault_is_said(file: Path, text: str, fault: str) -> None:
    assert faults_of(file, text) == [fault]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("a: b: c", "mapping values are not allowed", id="not YAML"),
        pytest.param(
            "a: 1\n---\nb: 2", "expected a single document", id="two documents"
        ),
        pytest.param("[" * 5000, "nesting", id="deep nesting that never ends"),
        pytest.param("[" * 990 + "]" * 990, "recursion", id="deep nesting"),
        pytest.param("{" * 100 + "}" * 100, "", id="mappings as keys"),
        pytest.param("!!python/object:os.system {}", "could not determine", id="a tag"),
    ],
)
def test_a_file_that_is_no_plain_yaml_is_refused(
    file: Path, text: str, complaint: str
) -> None:
    (fault,) = faults_of(file, text)

    assert complaint in fault
    assert "\n" not in fault


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    file.write_bytes(b"\xff")

    with pytest.raises(SettingsError, match="invalid leading UTF-8 octet"):
        read_settings(file)


def test_a_file_that_is_not_there_is_a_fault(file: Path) -> None:
    with pytest.raises(SettingsError, match="no such file or directory"):
        read_settings(file)


def test_the_message_lists_all_faults_under_the_files_name(file: Path) -> None:
    file.write_text("server: {port: -1}\nextra: 1\n")

    with pytest.raises(SettingsError) as caught:
        read_settings(file)

    assert str(caught.value) == (
        "config.yaml: 2 fault(s)\n"
        "  server.port: Input should be greater than or equal to 0, got -1\n"
        "  extra: unknown key, got 1"
    )


def test_the_faults_of_the_chains_are_all_said(file: Path) -> None:
    faults = faults_of(
        file,
        "fallback: {chains: [[nvidia.com/mig-1g.10gb, nvidia.com/gpu],"
        " [nvidia.com/mig-1g.10gb, example.com/other]]}",
    )

    assert len(faults) >= 2
    assert all(fault.startswith("fallback.chains") for fault in faults)


# --- schema and page ---------------------------------------------------------


def test_the_schema_is_that_of_the_models() -> None:
    """Written again with UPDATE_SCHEMA=1."""
    schema = Settings.model_json_schema(by_alias=True)
    text = json.dumps(schema, indent=2) + "\n"
    if os.environ.get("UPDATE_SCHEMA"):
        SCHEMA.write_text(text)

    assert SCHEMA.read_text() == text


def test_the_chart_takes_the_settings_of_the_models() -> None:
    """Written again with UPDATE_SCHEMA=1, as the schema itself."""
    schema = Settings.model_json_schema(by_alias=True)
    parts = {**schema.pop("$defs"), "Settings": schema}
    values = json.loads(VALUES.read_text())
    if os.environ.get("UPDATE_SCHEMA"):
        VALUES.write_text(json.dumps({**values, "$defs": parts}, indent=2) + "\n")

    assert json.loads(VALUES.read_text())["$defs"] == parts


def leaves(model: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, field and default of each key that has no keys of its own."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        own = f"{path}{field.alias}"
        if hasattr(type(value), "model_fields"):
            yield from leaves(value, f"{own}.")
        else:
            yield own, field, json.loads(type(model).model_dump_json(model))[name]


KEYS: Final = [
    pytest.param(field, default, id=path) for path, field, default in leaves(Settings())
]


@pytest.mark.parametrize(("field", "default"), KEYS)
def test_each_key_is_on_the_page_with_its_default_and_meaning(
    request: pytest.FixtureRequest, field: Any, default: Any
) -> None:
    path = request.node.callspec.id
    shown = "none" if default is None else f"`{json.dumps(default)}`"
    rows = [
        line
        for line in PAGE.read_text().splitlines()
        if line.startswith(f"| `{path}` |")
    ]

    assert len(rows) == 1
    assert f" | {shown} | " in rows[0]
    assert field.description in rows[0]


def test_the_page_has_no_key_that_is_not_there() -> None:
    known = {path for path, _, _ in leaves(Settings())}
    shown = {
        line.split("`")[1]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    }

    assert shown <= known


def test_a_key_that_comes_again_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("server: {port: 1}\nlogging: {level: info}\nserver: {port: 2}\n")

    with pytest.raises(SettingsError, match="each key once, got 'server' again"):
        read_settings(path)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "server: {port: -1}\nfallback: {chains: [[nvidia.com/gpu, x.com/y]]}\n",
            ["server.port", "fallback.chains[0][1]"],
            id="by the defaults",
        ),
        pytest.param(
            "server: {port: -1}\nmanagedPrefixes: [x.com/]\n"
            "fallback: {chains: [[nvidia.com/gpu, x.com/y]]}\n",
            ["server.port"],
            id="by the prefixes of the file",
        ),
        pytest.param(
            "managedPrefixes: 1\nfallback: {chains: [[nvidia.com/gpu, x.com/y]]}\n",
            ["managedPrefixes"],
            id="not by faulty prefixes",
        ),
    ],
)
def test_resources_that_nobody_counts_are_named_beside_other_faults(
    file: Path, text: str, faults: list[str]
) -> None:
    file.write_text(text)

    with pytest.raises(SettingsError) as caught:
        read_settings(file)

    assert [str(fault).partition(": ")[0] for fault in caught.value.faults] == faults


def test_faulty_chains_are_named_beside_other_faults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "server: {port: -1}\nfallback: {chains: [[nvidia.com/gpu, nvidia.com/gpu]]}\n"
    )

    with pytest.raises(SettingsError) as caught:
        read_settings(path)

    assert len(caught.value.faults) == 2
    assert str(caught.value.faults[0]).startswith("server.port: ")
    assert str(caught.value.faults[1]).startswith("fallback.chains[0][1]: ")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("gpuResources: ['a*b']", "gpuResources.0", id="asterisk inside"),
        pytest.param("managedPrefixes: ['']", "managedPrefixes.0", id="empty prefix"),
        pytest.param("labels: {accelerator: ''}", "labels.accelerator", id="no label"),
    ],
)
def test_names_that_could_match_nothing_or_all_are_faults(
    text: str, path: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)

    with pytest.raises(SettingsError) as caught:
        read_settings(config)

    assert [str(fault).partition(":")[0] for fault in caught.value.faults] == [path]


@pytest.mark.parametrize(
    ("lease", "is_right"),
    [
        pytest.param("gpu-extender/gpus", True, id="namespace and name"),
        pytest.param("kube-system/kube.scheduler-2", True, id="a longer name"),
        pytest.param("kube-scheduler", False, id="no namespace"),
        pytest.param("/kube-scheduler", False, id="an empty one"),
        pytest.param("kube-system/", False, id="no name"),
        pytest.param("a/b/c", False, id="three parts"),
        pytest.param("Kube-System/kube-scheduler", False, id="capitals"),
        pytest.param("a/../b", False, id="a way out"),
    ],
)
def test_a_lease_has_namespace_and_name(lease: str, *, is_right: bool) -> None:
    text = json.dumps({"extender": {"schedulerLease": lease}})

    if is_right:
        settings = Settings.model_validate_json(text)
        assert settings.extender.scheduler_lease == lease
        return
    with pytest.raises(pydantic.ValidationError, match="wanted NAMESPACE/NAME of a Le"):
        Settings.model_validate_json(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("server: [1\n", "line 2, column 1: did not find", id="no YAML"),
        pytest.param(
            "server: {port: 1, port: 2}\n",
            "line 1, column 19: wanted each key once, got 'port' again",
            id="a key twice",
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)

    with pytest.raises(SettingsError) as caught:
        read_settings(path)

    assert str(caught.value).startswith(f"config.yaml: 1 fault(s)\n  {said}")
