"""The registration that is printed, and files in `deploy/` that are as printed."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.commands.cli import main
from tests.builders import make_node
from tests.certificates import write_pair
from tests.service_process import ROOT

SELF_SIGNED = {"selfSigned": {"enabled": True}}


def write_config(folder: Path, **sections: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"webhook": SELF_SIGNED, **sections}))
    return path


def webhook_of(text: str) -> Any:
    (webhook,) = yaml.safe_load(text)["webhooks"]
    return webhook


def run(config: Path, *arguments: str | Path) -> int:
    return main(["webhook-config", "--config", str(config), *map(str, arguments)])


def test_the_shipped_registration_is_what_is_printed_for_the_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(write_config(tmp_path))

    printed = capsys.readouterr()
    shipped = (ROOT / "deploy" / "webhook.yaml").read_text(encoding="utf-8")
    assert (status, printed.err) == (0, "")
    assert printed.out == shipped


def test_without_a_configuration_the_defaults_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "config.yaml"
    empty.write_text("{}\n")
    assert main(["webhook-config", "--config", str(empty)]) == 0
    of_defaults = capsys.readouterr()

    assert main(["webhook-config"]) == 0

    assert capsys.readouterr() == of_defaults


@pytest.mark.usefixtures("root_logger_as_it_was")
def test_the_shipped_scheduler_configuration_is_what_is_printed_for_common_resources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slices = [f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb")]
    offered = dict.fromkeys([*slices, "nvidia.com/gpu-memory"], "1")
    nodes = {"kind": "List", "items": [make_node(name="a", resources=offered)]}
    (tmp_path / "dump.json").write_text(json.dumps(nodes))
    cluster = {"source": "file", "files": ["dump.json"]}

    status = main(
        [
            "scheduler-config",
            "--config",
            str(write_config(tmp_path, cluster=cluster, webhook={})),
        ]
    )

    shipped = (ROOT / "deploy" / "scheduler-config.yaml").read_text(encoding="utf-8")
    assert (status, capsys.readouterr().out) == (0, shipped)


def test_what_the_settings_say_is_registered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    self_signed = {
        "enabled": True,
        "registrationName": "gpus",
        "dnsNames": ["gpus.example.org", "webhook.gpu-system.svc"],
    }
    webhook = {"selfSigned": self_signed, "deadlineMilliseconds": 9000}
    injection = {
        "failurePolicy": "Ignore",
        "skippedNamespaces": ["kube-system", "gpu-system"],
        "triggerAnnotation": "example.org/type",
    }
    config = write_config(
        tmp_path,
        webhook=webhook,
        injection=injection,
        gpuResources=["habana.ai/gaudi", "gpu.intel.com/*", "nvidia.com/gpu"],
        managedPrefixes=["nvidia.com/", "it's.example/"],
    )

    status = run(config)

    text = capsys.readouterr().out
    webhook = webhook_of(text)
    terms = webhook["namespaceSelector"]["matchExpressions"]
    asks = webhook["matchConditions"][1]["expression"]
    assert (status, yaml.safe_load(text)["metadata"]["name"]) == (0, "gpus")
    assert webhook["clientConfig"]["service"] == {
        "namespace": "gpu-system",
        "name": "webhook",
        "path": "/mutate",
        "port": 443,
    }
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 10)
    assert terms[0]["values"] == ["kube-system", "gpu-system"]
    assert (
        "k.startsWith('nvidia.com/') || k.startsWith('it\\'s.example/')"
        " || k == 'habana.ai/gaudi' || k.startsWith('gpu.intel.com/')"
    ) in asks
    assert "'example.org/type' in object.metadata.annotations" in asks


@pytest.mark.parametrize(
    ("arguments", "client"),
    [
        pytest.param(
            ["--url", "https://10.0.0.1:8443"],
            {"url": "https://10.0.0.1:8443/mutate"},
            id="a URL without a path",
        ),
        pytest.param(
            ["--url", "https://[fd00::1]:8443/gpu/mutate"],
            {"url": "https://[fd00::1]:8443/gpu/mutate"},
            id="a URL with one",
        ),
        pytest.param(
            ["--service", "ml/hook"],
            {
                "service": {
                    "namespace": "ml",
                    "name": "hook",
                    "path": "/mutate",
                    "port": 443,
                }
            },
            id="a Service",
        ),
    ],
)
def test_where_the_api_server_calls_is_an_option(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    client: Any,
) -> None:
    status = run(write_config(tmp_path), *arguments)

    printed = webhook_of(capsys.readouterr().out)["clientConfig"]
    assert (status, printed) == (0, client)


def test_a_ca_becomes_the_bundle_and_the_note_about_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = write_pair(tmp_path)
    files = {"certificateFile": str(certificate), "keyFile": str(key)}

    status = run(write_config(tmp_path, webhook=files), "--ca-file", certificate)

    printed = capsys.readouterr()
    bundle = webhook_of(printed.out)["clientConfig"]["caBundle"]
    assert (status, printed.err) == (0, "")
    assert base64.b64decode(bundle) == certificate.read_bytes()
    assert "`caBundle` is missing" not in printed.out


def test_without_a_certificate_it_warns_that_nobody_can_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(write_config(tmp_path, webhook={}))

    printed = capsys.readouterr()
    assert status == 0
    assert printed.err.startswith("Warning: the configuration has neither webhook.")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        pytest.param(["--url", "http://10.0.0.1"], "--url: wanted a URL", id="http"),
        pytest.param(["--url", "10.0.0.1:8443"], "--url: wanted", id="no scheme"),
        pytest.param(["--url", "https://"], "--url: wanted", id="no host"),
        pytest.param(["--url", "https://a:x/"], "--url: wanted", id="no port"),
        pytest.param(["--url", "https://[::1/"], "--url: wanted", id="half an address"),
        pytest.param(["--url", "https://a/m?x=1"], "--url: wanted", id="a query"),
        pytest.param(["--url", "https://u@a/m"], "--url: wanted", id="a user"),
        pytest.param(["--service", "hook"], "--service: wanted", id="no namespace"),
        pytest.param(["--service", "a/b/c"], "--service: wanted", id="three parts"),
        pytest.param(["--service", "A/b"], "--service: wanted", id="capitals"),
        pytest.param(["--service", "a/"], "--service: wanted", id="no name"),
        pytest.param(
            ["--ca-file", "ghost.crt"], "--ca-file: ghost.crt: ", id="no file"
        ),
        pytest.param(["--ca-file", "README.md"], "--ca-file: README.md: ", id="no PEM"),
    ],
)
def test_options_that_no_registration_can_be_made_from_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    fault: str,
) -> None:
    status = run(write_config(tmp_path), *arguments)

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert printed.err.startswith(fault)
    assert printed.err.count("\n") == 1


def test_faults_of_file_and_options_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, extra=1)

    status = run(config, "--service", "x", "--ca-file", tmp_path / "ghost.crt")

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert "config.yaml: 1 fault(s)" in printed.err
    assert "--service: wanted" in printed.err
    assert "--ca-file: " in printed.err


def test_operators_that_set_up_gpus_are_exempt_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(write_config(tmp_path))

    terms = webhook_of(capsys.readouterr().out)["namespaceSelector"]["matchExpressions"]
    exempt = set(terms[0]["values"])
    assert terms[0]["operator"] == "NotIn"
    assert exempt >= {"kube-system", "gpu-extender", "gpu-operator", "kube-amd-gpu"}
    assert exempt >= {"nvidia-gpu-operator", "nvidia-dra-driver-gpu"}


def test_the_url_of_the_settings_is_registered_unless_an_option_says_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, webhook={**SELF_SIGNED, "url": "https://10.0.0.9"})

    run(config)
    one = webhook_of(capsys.readouterr().out)["clientConfig"]
    run(config, "--service", "ml/hook")
    other = webhook_of(capsys.readouterr().out)["clientConfig"]

    assert one == {"url": "https://10.0.0.9/mutate"}
    assert other["service"]["namespace"] == "ml"
