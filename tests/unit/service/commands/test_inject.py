import json
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import jsonpatch
import pytest
import yaml

from service.commands.cli import main
from tests.builders import make_node
from tests.fakes.webhook import (
    C1,
    GPU,
    NETWORKS,
    TRIGGER,
    container,
    gpus,
    make_pod,
    make_webhook,
)

pytestmark = pytest.mark.usefixtures("root_logger_as_it_was")

MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """4 cores and 8Gi for each GPU of a V100."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(C1))
    return path


def write_manifest(folder: Path, *objects: Any, name: str = "pod.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return path


def write_cluster(folder: Path, *nodes: dict[str, Any]) -> Path:
    path = folder / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": list(nodes)}))
    return path


def run(*arguments: str | Path) -> int:
    return main(["inject", *map(str, arguments)])


def unwrapped(text: str) -> list[str]:
    """Return what was told, a line for each thing."""
    return text.replace("\n  ", " ").splitlines()


def test_the_pod_is_printed_as_the_webhook_would_change_it(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(container("a", gpus(2)))

    status = run("-f", write_manifest(tmp_path, pod), "--rules", rules)

    printed = capsys.readouterr()
    assert status == 0
    assert yaml.safe_load(printed.out) == make_webhook().send(pod).pod
    assert printed.err == "pod default/p: injected (rule_applied)\n"


def test_the_patch_is_that_of_the_webhook(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(container("a", gpus(2)))

    run("-f", write_manifest(tmp_path, pod), "--rules", rules, "-o", "patch")

    assert json.loads(capsys.readouterr().out) == make_webhook().send(pod).operations


def test_each_pod_has_its_patch_on_a_line_of_its_own(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(
        tmp_path,
        make_pod(container("a", gpus(1))),
        make_pod(container("a"), gpu_type=None, metadata={"name": "q"}),
    )

    status = run("-f", manifest, "--rules", rules, "-o", "patch")

    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert status == 0
    assert len(json.loads(first)) == 5
    assert second == "[]"
    assert "pod default/q: no injection (no_gpu_type)\n" in printed.err


def test_the_pod_level_is_completed_as_the_api_server_does(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(
        tmp_path,
        make_pod(
            container("a", gpus(1)),
            container("s", {"limits": {"cpu": "500m"}}),
            resources={"limits": {"memory": "4Gi"}},
        ),
    )

    run("-f", manifest, "--rules", rules)

    printed = capsys.readouterr()
    pod = yaml.safe_load(printed.out)
    assert pod["spec"]["containers"][0]["resources"] == gpus(1, cpu="3500m")
    assert pod["spec"]["resources"]["requests"] == {"cpu": "4", "memory": "4Gi"}
    assert "cpu is set for the pod" not in printed.err


# The pods of a manifest by what becomes of them, and the line of each.
OF_EACH_KIND: Final[dict[str, tuple[Any, dict[str, Any], int | None]]] = {
    "patched": (container("a", gpus(1)), {}, 5),
    "refused": (container("a", gpus(1, **{"amd.com/gpu": "1"})), {}, None),
    "left alone": (container("a"), {"gpu_type": None}, 0),
}


@pytest.mark.parametrize(
    "kinds",
    [
        *permutations(OF_EACH_KIND),
        ("refused",),
        ("refused", "refused", "patched"),
        ("patched", "refused", "refused", "left alone", "refused"),
    ],
    ids=", ".join,
)
def test_each_pod_has_its_line_among_patches(
    rules: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kinds: tuple[str, ...],
) -> None:
    pods = [
        make_pod(of_kind, metadata={"name": f"p{place}"}, **options)
        for place, (of_kind, options, _) in enumerate(OF_EACH_KIND[k] for k in kinds)
    ]

    status = run("-f", write_manifest(tmp_path, *pods), "--rules", rules, "-o", "patch")

    patches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 1
    assert [patch if patch is None else len(patch) for patch in patches] == [
        OF_EACH_KIND[kind][2] for kind in kinds
    ]


def test_json_is_one_pod_or_a_list_of_pods(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(container("a", gpus(1)))
    one = write_manifest(tmp_path, pod)
    two = write_manifest(tmp_path, pod, pod, name="two.yaml")

    run("-f", one, "--rules", rules, "-o", "json")
    alone = json.loads(capsys.readouterr().out)
    run("-f", two, "--rules", rules, "-o", "json")

    assert alone["metadata"]["annotations"] == {
        TRIGGER: "V100",
        NETWORKS: "tke-route-eni",
    }
    assert json.loads(capsys.readouterr().out) == [alone, alone]


def test_a_refusal_has_the_message_of_the_webhook(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(
        container("a", gpus(1)), container("s", {"requests": {"cpu": "4001m"}})
    )
    sound = make_pod(container("a", gpus(1)), metadata={"name": "q"})

    status = run("-f", write_manifest(tmp_path, pod, sound), "--rules", rules)

    printed = capsys.readouterr()
    assert status == 1
    assert unwrapped(printed.err)[0] == make_webhook().send(pod).message
    # The other one is printed all the same.
    assert yaml.safe_load(printed.out)["metadata"]["name"] == "q"


def test_nothing_is_printed_of_a_refused_pod(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(container("a", gpus(1, **{"amd.com/gpu": "1"})))

    for output in ("yaml", "json", "patch"):
        status = run(
            "-f", write_manifest(tmp_path, pod), "--rules", rules, "-o", output
        )

        printed = "null\n" if output == "patch" else ""
        assert (status, capsys.readouterr().out) == (1, printed)


def test_warnings_are_those_of_the_webhook(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(container("a", gpus(1)), gpu_type="T4")

    status = run("-f", write_manifest(tmp_path, pod), "--rules", rules)

    (warning,) = make_webhook().send(pod).warnings
    assert status == 0
    assert capsys.readouterr().err == (
        f"Warning: pod default/p: {warning}\n"
        "pod default/p: no injection (unknown_gpu_type)\n"
    )


def test_a_wanted_type_that_nobody_knows_is_a_warning(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "gpu-extender.io/gpu-type"
    pod = make_pod(container("a", gpus(1)))
    pod["metadata"]["annotations"][key] = "H100 A100"

    status = run("-f", write_manifest(tmp_path, pod), "--rules", rules)

    assert status == 0
    assert capsys.readouterr().err.startswith(
        f"Warning: pod default/p: annotation {key}: 'H100 A100' is no known GPU model"
    )


def test_what_is_told_of_a_pod_has_lines_of_100_columns(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "gpu-extender.io/gpu-type"
    name = "p" * 50
    pod = make_pod(container("a", gpus(1)), gpu_type="large\x1b[31m")
    pod["metadata"] |= {"name": name}
    pod["metadata"]["annotations"][key] = "H100 A100"
    refused = make_pod(
        container("a", gpus(1)), container("s", {"requests": {"cpu": "4001m"}})
    )
    refused["metadata"] |= {"name": "q" * 80}

    status = run("-f", write_manifest(tmp_path, pod, refused), "--rules", rules)

    shown = capsys.readouterr().err
    told = unwrapped(shown)
    assert status == 1
    assert 80 < max(map(len, shown.splitlines())) <= 100
    assert "\x1b" not in shown
    assert told[:3] == [
        f"Warning: pod default/{name}: {warning}"
        for warning in (
            (
                f"annotation {key}: 'H100 A100' is no known GPU model, only nodes"
                " labelled so match; names are separated by commas: 'H100, A100'"
            ),
            (
                f"annotation {TRIGGER}: 'large\\x1b[31m' is no known GPU model: only"
                f" rules go by it, nodes by {key}"
            ),
            "no rule for GPU type 'large\\x1b[31m': nothing injected",
        )
    ]
    assert told[-1] == make_webhook().send(refused).message


def test_requests_are_completed_from_limits_as_the_api_server_does(
    tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("injection: {existing: keep}\n")
    resources = {"limits": {GPU: 1, "cpu": "2"}, "requests": {"memory": "1Gi"}}
    pod = make_pod(
        container("a", resources),
        initContainers=[container("i", {"limits": {"cpu": "1"}}), container("j")],
    )

    run("-f", write_manifest(tmp_path, pod), "--rules", rules, "--config", config)

    spec = yaml.safe_load(capsys.readouterr().out)["spec"]
    # A limit of two cores is a request for two: none of the rule's four are written.
    assert spec["containers"][0]["resources"]["requests"] == {
        GPU: 1,
        "cpu": "2",
        "memory": "1Gi",
    }
    assert spec["initContainers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert "resources" not in spec["initContainers"][1]


def test_the_rule_is_that_of_the_namespace_of_the_pod_or_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({**C1, "namespaceWhiteList": ["ml"]}))
    named = make_pod(container("a", gpus(1)), metadata={"namespace": "ml"})
    bare = make_pod(container("a", gpus(1)))
    del bare["metadata"]["namespace"]

    for manifest, extra in ((named, []), (bare, ["-n", "ml"]), (named, ["-n", "ml"])):
        run("-f", write_manifest(tmp_path, manifest), "--rules", path, *extra)

        printed = capsys.readouterr()
        assert printed.err == "pod ml/p: no injection (white_listed_namespace)\n"


def test_the_pod_of_a_template_is_printed_as_its_controller_makes_it(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(container("a", gpus(1)))
    job = {
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {
            "template": {
                "metadata": {"annotations": pod["metadata"]["annotations"]},
                "spec": pod["spec"],
            }
        },
    }
    service = {"kind": "Service", "metadata": {"name": "web"}}

    status = run("-f", write_manifest(tmp_path, service, job), "--rules", rules)

    printed = capsys.readouterr()
    made = yaml.safe_load(printed.out)
    assert status == 0
    assert printed.err == "pod ml/train-*: injected (rule_applied)\n"
    assert (made["apiVersion"], made["kind"]) == ("v1", "Pod")
    assert made["metadata"]["generateName"] == "train-"
    assert "name" not in made["metadata"]
    assert made["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "4"


def test_what_yaml_shares_by_an_anchor_is_changed_once_for_each_container(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "metadata: {name: p, annotations: {task.bkbcs.tencent.com/gpu-type: V100}}\n"
        "spec:\n"
        "  containers:\n"
        "  - {name: a, resources: &r {requests: {}, limits: {}}}\n"
        "  - {name: b, resources: {limits: {nvidia.com/gpu: 1}}}\n"
        "  - {name: c, resources: *r}\n"
    )

    run("-f", path, "--rules", rules)

    containers = yaml.safe_load(capsys.readouterr().out)["spec"]["containers"]
    assert containers[0]["resources"] == {"requests": {}, "limits": {}}
    assert containers[1]["resources"]["requests"]["cpu"] == "4"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--cluster", "dump.json"], id="a cluster on the command line"),
        pytest.param([], id="a cluster in the configuration"),
    ],
)
def test_pods_fall_back_on_the_given_cluster_one_after_the_other(
    arguments: list[str],
    rules: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_cluster(
        tmp_path,
        make_node(name="s", resources={MIG: "1"}),
        make_node(name="w", gpus=8),
    )
    config = tmp_path / "config.yaml"
    source = "" if arguments else "cluster: {source: file, files: [dump.json]}\n"
    config.write_text(f"{source}fallback: {{chains: [[{MIG}, {GPU}]]}}\n")
    asking = {"limits": {MIG: "1"}, "requests": {MIG: "1"}}
    manifest = write_manifest(
        tmp_path,
        make_pod(container("a", asking)),
        make_pod(container("a", asking), metadata={"name": "q"}),
    )

    status = run("-f", manifest, "--rules", rules, "--config", config, *arguments)

    printed = capsys.readouterr()
    first, second = yaml.safe_load_all(printed.out)
    assert status == 0
    # The only slice is held for the first one.
    assert first["spec"]["containers"][0]["resources"]["limits"] == {MIG: "1"}
    assert second["spec"]["containers"][0]["resources"]["limits"] == {
        GPU: "1",
        "cpu": "4",
        "memory": "8Gi",
    }
    assert "pod default/q: injected (rule_applied), fallback changed\n" in printed.err


def test_pods_without_names_of_one_template_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cluster(
        tmp_path,
        make_node(name="s", resources={MIG: "1"}),
        make_node(name="w", gpus=8),
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "cluster: {source: file, files: [dump.json]}\n"
        f"fallback: {{chains: [[{MIG}, {GPU}]]}}\n"
    )
    asking = {"limits": {MIG: "1"}, "requests": {MIG: "1"}}
    pod = make_pod(container("a", asking), metadata={"name": "", "generateName": "q-"})
    manifest = write_manifest(tmp_path, pod, pod)

    status = run("-f", manifest, "--config", config)

    printed = capsys.readouterr()
    limits = [
        item["spec"]["containers"][0]["resources"]["limits"]
        for item in yaml.safe_load_all(printed.out)
    ]
    assert status == 0
    assert limits == [{MIG: "1"}, {GPU: "1"}]
    assert (
        "pod default/q-*: no injection (unknown_gpu_type), fallback kept\n"
        in printed.err
    )


def test_without_a_cluster_the_pod_is_told_that_nothing_was_weighed(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"fallback: {{chains: [[{MIG}, {GPU}]]}}\n")
    pod = make_pod(container("a", {"limits": {MIG: "1"}}))

    status = run(
        "-f", write_manifest(tmp_path, pod), "--rules", rules, "--config", config
    )

    assert status == 0
    assert f"no fallback was weighed for {MIG}" in unwrapped(capsys.readouterr().err)[0]


def test_all_faults_of_all_inputs_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("extra: 1\n")
    rules = tmp_path / "rules.json"
    rules.write_text('{"resourceMap": 1}')
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": 7}}},
    }
    odd = write_manifest(tmp_path, deployment, make_pod(container("a"), nodeName=7))
    odd_name = write_manifest(
        tmp_path, make_pod(metadata={"namespace": "M L"}), name="name.yaml"
    )
    endless = tmp_path / "endless.yaml"
    endless.write_text("kind: Pod\nspec: &s {a: *s}\n")

    status = run(
        *("-f", odd, "-f", "ghost.yaml", "-f", odd_name, "-f", endless),
        *("--rules", rules, "--config", config),
        *("--cluster", tmp_path / "nowhere.json"),
    )

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    for message in (
        "config.yaml: 1 fault(s)\n  extra: unknown key, got 1",
        "rules.json: 1 fault(s)\n  resourceMap: wanted a mapping, got 1",
        f"{odd}: document 1: spec.template.spec.containers: wanted array",
        f"{odd}: document 2: spec.nodeName: wanted str",
        "ghost.yaml: no such file or directory",
        f"{odd_name}: metadata.namespace: wanted the name of a namespace, got 'M L'",
        f"{endless}: object: Circular reference detected",
        "nowhere.json: no such file or directory",
    ):
        assert message in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["-n", "other"],
            "metadata.namespace: wanted 'other', as the command line has it,"
            " got 'default'",
            id="two namespaces",
        ),
        pytest.param(
            ["--rules", ""],
            "rules: wanted --rules, injection.rulesFile or fallback.chains, got none",
            id="no rules",
        ),
    ],
)
def test_what_the_command_line_cannot_mean_is_a_fault(
    arguments: list[str],
    message: str,
    rules: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = [] if "--rules" in arguments else ["--rules", str(rules)]
    rest = [] if "--rules" in arguments else arguments
    manifest = write_manifest(tmp_path, make_pod(container("a", gpus(1))))

    status = run("-f", manifest, *chosen, *rest)

    assert status == 2
    assert message in capsys.readouterr().err


def test_the_rules_of_the_configuration_are_the_default(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"injection: {{rulesFile: {rules.name}}}\n")
    pod = make_pod(container("a", gpus(1)))

    status = run(
        *("-f", write_manifest(tmp_path, pod), "--config", config, "-o", "patch")
    )

    operations = json.loads(capsys.readouterr().out)
    assert status == 0
    assert jsonpatch.apply_patch(pod, operations) == make_webhook().send(pod).pod


def test_the_readme_shows_what_becomes_of_the_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(__file__).parents[4]
    configs = root / "configs"

    status = run(
        *("-f", configs / "examples" / "v100-pod.yaml"),
        *("--rules", configs / "injection-rules.json"),
    )

    _, _, rest = (root / "README.md").read_text().partition("gpu-extender inject -f")
    shown = rest.partition("```yaml\n")[2].partition("```")[0]
    printed = capsys.readouterr()
    assert status == 0
    assert printed.out == shown
    assert f"`{printed.err.strip()}`" in rest
