"""The kustomize base and its overlays, which are made of what the chart renders.

``UPDATE_KUSTOMIZE=1 make chart`` writes them anew after a change of the chart.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from tests.chart.rendering import (
    HELMS,
    MODES,
    NAMESPACE,
    ROOT,
    merged,
    render,
    run,
)

FOLDER: Final = ROOT / "deploy" / "kustomize"

# overlay -> mode of the chart
OVERLAYS: Final = {
    "own-scheduler": "own scheduler",
    "existing-scheduler": "existing scheduler",
    "cert-manager": "cert-manager",
}

# Of the mode "own scheduler"; whoever wants it names it beside an overlay.
COMPONENT: Final = "components/scheduler-name-policy"

# Of Helm, and of the chart's own version.
LABELS: Final = ("helm.sh/chart", "app.kubernetes.io/managed-by")

# Names of the chart's ConfigMaps without their hashes -> those that are generated. With
# the name of the Lease, kustomize would add its hash to that in the Role, too.
GENERATED: Final = {
    "gpu-extender-config": "gpu-extender-config",
    "gpu-extender-scheduler": "gpu-extender-scheduler-config",
}

HEAD: Final = (
    "# Made of what deploy/chart renders, by UPDATE_KUSTOMIZE=1 make chart. Put what\n"
    "# you want into a kustomization of your own: docs/chart.md shows one.\n"
)


def key(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what makes an object the same one."""
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def without_hash(name: str) -> str:
    """Return the name of a ConfigMap of settings as it is generated."""
    for chart_s, ours in reversed(GENERATED.items()):
        if name.startswith((f"{ours}-", f"{chart_s}-")):
            return ours
    return name


def plain(item: Any) -> Any:
    """Return an object without Helm's labels and without hashes in names."""
    if isinstance(item, list):
        return [plain(one) for one in item]
    if not isinstance(item, dict):
        return item
    tree = {key: plain(value) for key, value in item.items() if key not in LABELS}
    if "configMap" in tree:
        tree["configMap"]["name"] = without_hash(tree["configMap"]["name"])
    if tree.get("kind") == "ConfigMap":
        tree["metadata"]["name"] = without_hash(tree["metadata"]["name"])
    return tree


def namespace(overlay: str) -> dict[str, Any]:
    level = "privileged" if overlay == "existing-scheduler" else "restricted"
    labels = {"pod-security.kubernetes.io/enforce": level}
    metadata = {"name": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def rendered(
    overlay: str, values: Mapping[str, Any] | None = None
) -> dict[tuple[str, str, str], Any]:
    """Return what the chart renders for an overlay, but for the pod of `helm test`."""
    image = {"image": {"repository": "gpu-extender"}}
    trees = (MODES[OVERLAYS[overlay]], values or {}, image)
    objects = [plain(o) for o in render(HELMS[0], merged(*trees))]
    objects.append(namespace(overlay))
    return {key(o): o for o in objects if o["kind"] != "Pod"}


def policy() -> dict[tuple[str, str, str], Any]:
    """Return what the chart renders more with the policy."""
    without = rendered("own-scheduler")
    tree = rendered("own-scheduler", MODES["scheduler name policy"])
    return {k: o for k, o in tree.items() if k not in without}


def file_of(name: str) -> str:
    """Return the file that a ConfigMap is generated from."""
    return name.removeprefix("gpu-extender-") + ".yaml"


def kustomization(names: Iterable[str], *, base: bool) -> str:
    tree: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*(["../../base"] if base else []), "gpu-extender.yaml"],
    }
    if names:
        tree["configMapGenerator"] = [
            {
                "name": name,
                "namespace": NAMESPACE,
                "files": [f"config.yaml={file_of(name)}"],
            }
            for name in names
        ]
        labels = {"app.kubernetes.io/name": "gpu-extender"}
        tree["generatorOptions"] = {"immutable": True, "labels": labels}
    return HEAD + yaml.safe_dump(tree, sort_keys=False)


def made() -> dict[str, str]:
    """Return the contents of all files, by their paths."""
    trees = {overlay: rendered(overlay) for overlay in OVERLAYS}
    first, *others = trees.values()
    shared = {k: o for k, o in first.items() if all(t.get(k) == o for t in others)}
    files = {
        "base/kustomization.yaml": kustomization((), base=False),
        "base/gpu-extender.yaml": HEAD + dump(shared),
    }
    for overlay, tree in trees.items():
        folder = f"overlays/{overlay}"
        configs = {
            name: o["data"]["config.yaml"]
            for (kind, _, name), o in tree.items()
            if kind == "ConfigMap"
        }
        own = {k: o for k, o in tree.items() if k not in shared and k[0] != "ConfigMap"}
        files[f"{folder}/kustomization.yaml"] = kustomization(configs, base=True)
        files[f"{folder}/gpu-extender.yaml"] = HEAD + dump(own)
        files |= {f"{folder}/{file_of(n)}": text for n, text in configs.items()}
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["policy.yaml"],
    }
    files |= {
        f"{COMPONENT}/kustomization.yaml": HEAD + dump({COMPONENT: component}),
        f"{COMPONENT}/policy.yaml": HEAD + dump(policy()),
    }
    return files


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as a person would."""


def write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, write_text)


def dump(objects: Mapping[Any, Any]) -> str:
    return yaml.dump_all(objects.values(), Dumper=Dumper, sort_keys=False, width=10_000)


def built(folder: Path) -> list[Any]:
    """Return what kubectl makes of a kustomization."""
    return [o for o in yaml.safe_load_all(run("kubectl", "kustomize", folder)) if o]


def test_the_files_are_those_of_the_chart() -> None:
    wanted = made()
    if os.environ.get("UPDATE_KUSTOMIZE"):
        for name, text in wanted.items():
            path = FOLDER / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    found = {
        str(path.relative_to(FOLDER)): path.read_text()
        for path in FOLDER.rglob("*")
        if path.is_file()
    }

    assert found == wanted


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_builds_what_the_chart_renders(overlay: str) -> None:
    objects = {key(plain(o)): plain(o) for o in built(FOLDER / "overlays" / overlay)}

    wanted = rendered(overlay)
    assert set(objects) == set(wanted)
    for name, item in objects.items():
        if item["kind"] == "ConfigMap":
            assert item["data"] == wanted[name]["data"]
            assert item["immutable"] is True
        else:
            assert item == wanted[name]


def test_the_component_adds_the_policy_to_an_overlay(tmp_path: Path) -> None:
    above = Path(os.path.relpath(FOLDER, tmp_path))
    tree = {
        "resources": [str(above / "overlays/own-scheduler")],
        "components": [str(above / COMPONENT)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(tree))

    objects = {key(o): o for o in built(tmp_path)}

    stock = {key(o) for o in built(FOLDER / "overlays/own-scheduler")}
    assert {k: o for k, o in objects.items() if k not in stock} == policy()


@pytest.mark.parametrize("minor", ["1.34", "1.36", "1.37"])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_object_is_one_of_kubernetes(overlay: str, minor: str) -> None:
    for item in built(FOLDER / "overlays" / overlay):
        if not item["apiVersion"].startswith("cert-manager.io/"):
            kubernetes_validate.validate(item, minor, strict=True)


def test_the_kustomization_on_the_page_sets_images_and_settings(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "chart.md").read_text()
    (block,) = re.findall(r"```yaml\n(resources:\n.*?)```", page, re.DOTALL)
    above = os.path.relpath(FOLDER, tmp_path)
    block = block.replace("deploy/kustomize", above)
    (tmp_path / "kustomization.yaml").write_text(block)
    (tmp_path / "config.yaml").write_text("cluster: {source: kubernetes}\n")

    objects = built(tmp_path)

    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (extender,), (scheduler,) = pod["initContainers"], pod["containers"]
    assert extender["image"] == "REGISTRY/gpu-extender:0.1.0"
    assert scheduler["image"] == "registry.k8s.io/kube-scheduler:v1.34.4"
    config = next(v["configMap"] for v in pod["volumes"] if v["name"] == "config")
    (used,) = (o for o in objects if o["metadata"]["name"] == config["name"])
    assert used["data"]["config.yaml"] == "cluster: {source: kubernetes}\n"
    stock = {o["metadata"]["name"] for o in built(FOLDER / "overlays/own-scheduler")}
    assert config["name"] not in stock  # another content, another name: the pods roll
