"""How the files of the image are chosen, listed and measured; nothing is installed."""

import json
import tomllib
from pathlib import Path
from typing import Final

import pytest

from deploy.image import build_tree
from deploy.image.build_tree import (
    HOME,
    LIBRARY,
    PACKAGES,
    SBOM,
    TreeError,
    check_sizes,
    discard,
    finish,
    layer_bytes,
    pinned,
    prune,
    tree_bytes,
    write_sbom,
)
from tests.service_process import ROOT

REQUIREMENTS: Final = (
    "a==1 \\\n    --hash=x\nb-b==2 \\\n    --hash=y \\\n    --hash=z\n"
)


def write(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_one_pin_is_taken_with_its_hashes() -> None:
    assert pinned(REQUIREMENTS, "b-b") == REQUIREMENTS[REQUIREMENTS.index("b-b") :]
    assert pinned(REQUIREMENTS, "a") == "a==1 \\\n    --hash=x\n"
    with pytest.raises(TreeError, match="wanted a pin of c, got none"):
        pinned(REQUIREMENTS, "c")


def test_what_a_service_never_reads_goes_and_the_rest_stays(tmp_path: Path) -> None:
    kept = ("numpy/core.py", "falcon/app.py", "x-1.dist-info/METADATA", "testing/a.py")
    write(tmp_path, *kept)
    write(
        tmp_path,
        *("bin/f2py", "numpy/core.pyi", "numpy/tests/a.py", "numpy/f2py/b.py"),
        *("kubernetes/aio/c.py", "aiohttp/d.py", "aiohttp-3.1.dist-info/METADATA"),
        *("pip/e.py", "setuptools-8.dist-info/METADATA", "x-1.dist-info/RECORD"),
    )

    prune(tmp_path)

    left = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")}
    assert {name for name in left if (tmp_path / name).is_file()} == set(kept)


def test_a_finished_tree_can_be_read_and_started_and_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    tree = tmp_path / "tree"
    write(tree, f"{LIBRARY}/service/a.py")

    finish(tree)

    command = tree / HOME / "bin" / "gpu-extender"
    module = tree / LIBRARY / "service" / "a.py"
    modes = [path.stat().st_mode & 0o777 for path in (command, module, module.parent)]
    assert modes == [0o555, 0o444, 0o555]
    assert {p.stat().st_mtime for p in tree.rglob("*")} == {1_700_000_000}
    discard(tree)
    assert not tree.exists()
    discard(tree)  # there is none


def test_the_same_files_make_the_same_layer(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, f"{name}/x/y.py", text="pass\n" * 1000)
        finish(tmp_path / name)

    sizes = {layer_bytes(tmp_path / name) for name in ("a", "b")}
    assert len(sizes) == 1
    assert 0 < sizes.pop() < tree_bytes(tmp_path / "a")
    for name in ("a", "b"):
        discard(tmp_path / name)


@pytest.mark.parametrize("limit", ["MAX_TREE_BYTES", "MAX_LAYER_BYTES"])
def test_a_tree_beyond_a_limit_is_refused_with_its_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    write(tmp_path, "a", text="x" * 100)
    assert "0.0 MB unpacked, 0.0 MB compressed" in check_sizes(tmp_path)

    monkeypatch.setattr(build_tree, limit, 10)

    with pytest.raises(TreeError, match=r"tree: wanted at most .* got 0.0 MB unpacked"):
        check_sizes(tmp_path)


def test_the_bill_of_materials_names_each_distribution(tmp_path: Path) -> None:
    metadata = "Metadata-Version: 2.4\nName: Py_YAML\nVersion: 6.0\n"
    library = tmp_path / LIBRARY
    write(library, "a-6.0.dist-info/METADATA", text=metadata)
    licensed = "Name: numpy\nVersion: 2.4\nLicense-Expression: BSD-3-Clause\n"
    write(library, "numpy-2.4.dist-info/METADATA", text=licensed)
    ours = "Name: gpu-extender\nVersion: 1.0\n"
    write(library, "gpu_extender-1.0.dist-info/METADATA", text=ours)

    write_sbom(tmp_path, "1.0")

    bill = json.loads((tmp_path / SBOM).read_text())
    assert [one["purl"] for one in bill["components"]] == [
        "pkg:pypi/numpy@2.4",
        "pkg:pypi/py-yaml@6.0",
    ]
    assert bill["components"][0]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert bill["metadata"]["component"]["version"] == "1.0"


def test_the_image_has_every_package_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    dockerfile = (ROOT / "deploy" / "image" / "Dockerfile").read_text()

    assert {name.rstrip("*") for name in included} == set(PACKAGES)
    for name in PACKAGES:
        assert f"COPY {name} /src/{name}\n" in dockerfile


def test_the_image_is_for_any_user_of_the_group_0() -> None:
    dockerfile = (ROOT / "deploy" / "image" / "Dockerfile").read_text()

    final = dockerfile.rpartition("\nFROM ")[2]
    assert "\nUSER 10001:0\n" in final
    assert "\nRUN " not in final  # nothing but the tree is added to the base
    assert dockerfile.count("FROM ${BASE}") == 2
