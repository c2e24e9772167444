"""The files of the image, as `make image-tree` has built them, start and serve.

They run with the Python of the machine and nothing of the checkout, as any user of the
group 0, who may write nowhere.
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.service_process import DEADLINE_SECONDS, ROOT, wait_until

pytestmark = pytest.mark.image

TREE: Final = ROOT / "build" / "image-tree"
HOME: Final = TREE / "opt" / "gpu-extender"
LIBRARY: Final = HOME / "lib"
ANY_USER: Final = 12_345
# Not the checkout's virtual environment: what it has must not be found.
PYTHON: Final = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
# An image has the tree at the root; here it is somewhere else.
START: Final = "import sys; from service.commands.cli import main; sys.exit(main())"


def is_for_all(path: Path) -> bool:
    """Whether any user may come to a path, which for the root's own home is not so."""
    return all(one.stat().st_mode & 0o001 for one in (path, *path.parents))


def options() -> dict[str, Any]:
    """Return how to run something as the image would: any user, with the group 0."""
    environment = {"PYTHONPATH": str(LIBRARY), "PYTHONDONTWRITEBYTECODE": "1"}
    found: dict[str, Any] = {"cwd": "/", "env": environment}
    if os.geteuid() == 0 and is_for_all(Path(PYTHON)) and is_for_all(TREE):
        found |= {"user": ANY_USER, "group": 0, "extra_groups": []}
    return found


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  the tree's own
        [PYTHON, "-s", "-c", START, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        **options(),
    )


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Serve the demo cluster; return the port."""
    config = {
        "server": {"port": 0, "drainSeconds": 0},
        "cluster": {"source": "file", "files": [str(TREE.parent / "cluster.yaml")]},
    }
    for name, text in (
        ("cluster.yaml", (ROOT / "configs" / "demo-cluster.yaml").read_text()),
        ("config.yaml", yaml.safe_dump(config)),
    ):
        (TREE.parent / name).write_text(text)
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  the tree's own
            [
                PYTHON,
                "-s",
                "-c",
                START,
                "serve",
                "--config",
                f"{TREE.parent}/config.yaml",
            ],
            stdout=out,
            stderr=out,
            **options(),
        )

    def serving() -> list[dict[str, Any]]:
        assert process.poll() is None, log.read_text()
        whole, _, _ = log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["event"] == "serving"]

    try:
        wait_until(lambda: bool(serving()), "the image's process serves")
        yield int(serving()[0]["address"].rpartition(":")[2])
    finally:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0


def exchange(port: int, method: str, path: str, body: bytes | None = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_tree_serves_the_demo_cluster(port: int) -> None:
    wait_until(lambda: exchange(port, "GET", "/readyz/extender")[0] == 200, "ready")
    question = (ROOT / "configs" / "examples" / "filter.json").read_bytes()

    status, body = exchange(port, "POST", "/scheduler/filter", question)

    assert status == 200
    assert json.loads(body)["NodeNames"]
    assert exchange(port, "GET", "/livez/extender") == (200, b"ok")


def test_every_module_of_ours_and_of_the_api_client_is_there() -> None:
    script = (
        "import cryptography.x509, kubernetes.config, cluster.api.server,"
        " service.runtime, service.certificates.x509, sys;"
        f"assert service.runtime.__file__.startswith({str(TREE)!r});"
        "print(sorted(m for m in sys.modules if m.startswith('aiohttp')))"
    )

    done = subprocess.run(  # noqa: S603  the tree's own
        [PYTHON, "-s", "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        **options(),
    )

    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_commands_run_and_say_what_is_wrong() -> None:
    assert run("--help").returncode == 0
    missing = run("check-config", "/nowhere.yaml")
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr


def test_nothing_is_there_that_a_service_never_reads() -> None:
    found = {path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*")}

    assert not any(name.endswith((".pyi", "/RECORD", ".a")) for name in found)
    assert not any(f"/{name}/".count("/tests/") for name in found)
    assert not {"pip", "setuptools", "kubernetes/aio", "numpy/f2py", "aiohttp"} & found


def test_bytecode_is_there_for_what_is_imported_and_for_nothing_else() -> None:
    tag = f"cpython-3{sys.version_info.minor}"

    assert (LIBRARY / "service" / "__pycache__" / f"runtime.{tag}.pyc").exists()
    compiled = {path.parent.parent.name for path in LIBRARY.rglob("*.pyc")}
    assert "numpy" in compiled
    assert not list((LIBRARY / "kubernetes" / "client" / "api").rglob("core*.pyc"))


def test_all_may_read_and_nobody_may_write() -> None:
    modes = {path.stat().st_mode & 0o777 for path in TREE.rglob("*")}

    assert modes == {0o555, 0o444}


def test_the_bill_of_materials_has_what_is_installed() -> None:
    bill = json.loads((HOME / "sbom.cdx.json").read_text())

    names = {one["name"] for one in bill["components"]}
    assert bill["metadata"]["component"]["name"] == "gpu-extender"
    assert {"falcon", "kubernetes", "numpy", "cryptography", "pyyaml"} <= names
    assert "aiohttp" not in names
    assert all(one["purl"].startswith("pkg:pypi/") for one in bill["components"])
