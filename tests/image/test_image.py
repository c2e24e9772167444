"""The image, as `make image` has built it, starts as a runtime starts it, and serves.

Its files are the root of a process of any user of the group 0: read-only, without a
right to anything, and with nothing of the machine but `/proc` and harmless devices.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.image.build_image import HERE, NAME, buildah, read_layout
from deploy.image.build_tree import MAX_TREE_BYTES, tree_bytes
from tests.e2e.cluster.images import DEVICES
from tests.service_process import DEADLINE_SECONDS, ROOT, ServiceProcess

pytestmark = pytest.mark.image

LAUNCH: Final = ROOT / "tests" / "e2e" / "cluster" / "launch.py"
ITS_OWN_USER: Final = 10_001
ANY_USER: Final = 12_345
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONFIG: Final = {"cluster": {"source": "file", "files": ["cluster.yaml"]}}
# Of the machine in place of the image's; entries of `etc` are shown one by one.
APART: Final = ("dev", "etc", "proc", "sys", "tmp")


@pytest.fixture(scope="module")
def described() -> Mapping[str, Any]:
    """Return the image's own configuration."""
    return read_layout(HERE / "oci")[1]["config"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """Return the folder that is the root of a container of the image."""
    container = buildah("from", "--pull-never", f"{NAME}:{PROJECT['version']}")
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def start_of(
    folder: Path, files: Path, described: Mapping[str, Any], user: int
) -> dict[str, Any]:
    """Return what the first steps of a container's process are told."""
    links, binds = {}, [(name, name, False) for name in ("/proc", *DEVICES)]
    shown = [path for path in files.iterdir() if path.name not in APART]
    for path in (*shown, *(files / "etc").iterdir()):
        name = f"/{path.relative_to(files)}"
        if path.is_symlink():
            links[name] = str(path.readlink())
        else:
            binds.append((str(path), name, True))
    (folder / "root").mkdir()
    return {
        "space": None,
        "root": str(folder / "root"),
        "binds": binds,
        "links": links,
        "files": {},
        "hostname": "image",
        "readOnlyRoot": True,
        "folder": described["WorkingDir"],
        "user": user,
        "group": 0,
        "groups": [],
        "noNewPrivileges": True,
        "environment": dict(one.split("=", 1) for one in described["Env"]),
        "command": [*described["Entrypoint"], *described["Cmd"]],
    }


class ContainerProcess(ServiceProcess):
    """What the image starts, with a configuration where it is looked for."""

    def __init__(self, folder: Path, start: Mapping[str, Any]) -> None:
        super().__init__(folder, CONFIG)
        cluster = (ROOT / "configs" / "demo-cluster.yaml").read_text()
        files = {
            "/etc/gpu-extender/config.yaml": self.config.read_text(),
            "/etc/gpu-extender/cluster.yaml": cluster,
        }
        told = folder / "start.json"
        told.write_text(json.dumps({**start, "files": files}))
        self._command = [sys.executable, "-I", "-S", str(LAUNCH), str(told)]


@pytest.mark.parametrize("user", [ITS_OWN_USER, ANY_USER])
def test_the_image_serves_the_demo_cluster(
    tmp_path: Path, files: Path, described: Mapping[str, Any], user: int
) -> None:
    start = start_of(tmp_path, files, described, user)

    with ContainerProcess(tmp_path, start) as process:
        process.wait_ready()
        assert process.get("/readyz").status == 200
        question = (ROOT / "configs" / "examples" / "filter.json").read_bytes()
        answer = process.request("POST", "/scheduler/filter", question)
        status = Path(f"/proc/{process.process.pid}/status").read_text()

    assert answer.status == 200
    assert answer.json()["NodeNames"]
    assert re.search(r"(?m)^Uid:\t(\d+)", status)[1] == str(user)  # type: ignore[index]
    assert "\nCapEff:\t0000000000000000\n" in status
    assert process.wait_stopped() == 0


def test_even_root_can_write_nowhere(
    tmp_path: Path, files: Path, described: Mapping[str, Any]
) -> None:
    script = (
        "for folder in / /etc /opt/gpu-extender /opt/gpu-extender/lib /tmp /var;"
        ' do (: > "$folder/new") 2>&1; done'
    )
    start = start_of(tmp_path, files, described, 0)
    told = tmp_path / "start.json"
    told.write_text(json.dumps({**start, "command": ["/bin/sh", "-c", script]}))

    done = subprocess.run(  # noqa: S603  the image's own
        [sys.executable, "-I", "-S", str(LAUNCH), str(told)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )

    assert done.stdout.count("Read-only file system") == 6, done


def test_labels_and_start_are_those_of_the_dockerfile(
    described: Mapping[str, Any],
) -> None:
    labels = described["Labels"]

    assert labels["org.opencontainers.image.title"] == PROJECT["name"]
    assert labels["org.opencontainers.image.version"] == PROJECT["version"]
    assert labels["org.opencontainers.image.licenses"] == PROJECT["license"]
    assert labels["org.opencontainers.image.description"]
    assert re.fullmatch("[0-9a-f]{40}", labels["org.opencontainers.image.revision"])
    assert described["User"] == f"{ITS_OWN_USER}:0"
    assert described["Entrypoint"] == ["/opt/gpu-extender/bin/gpu-extender"]
    assert described["Cmd"] == ["serve", "--config", "/etc/gpu-extender/config.yaml"]
    assert list(described["ExposedPorts"]) == ["8443/tcp"]


def test_the_bill_of_materials_is_where_the_label_says(
    files: Path, described: Mapping[str, Any]
) -> None:
    place = described["Labels"]["io.gpu-extender.sbom"]
    bill = json.loads((files / place.lstrip("/")).read_text())
    library = files / "opt" / "gpu-extender" / "lib"

    installed = {
        re.sub(r"[-_.]+", "-", path.name.removesuffix(".dist-info").rpartition("-")[0])
        for path in library.glob("*.dist-info")
    }
    names = {one["name"] for one in bill["components"]}
    assert bill["metadata"]["component"]["version"] == PROJECT["version"]
    assert {name.lower() for name in installed} - {"gpu-extender"} == names


def test_nothing_but_one_folder_lies_on_the_base(files: Path) -> None:
    tree = files / "opt" / "gpu-extender"

    assert tree_bytes(tree) <= MAX_TREE_BYTES
    assert {path.stat().st_mode & 0o777 for path in tree.rglob("*")} == {0o555, 0o444}
    assert {path.stat().st_uid for path in tree.rglob("*")} == {0}
    # A folder of the base stays as it was.
    assert (files / "opt").stat().st_mode & 0o777 == 0o755


def test_the_build_left_no_mount() -> None:
    assert str(HERE) not in Path("/proc/self/mountinfo").read_text()
