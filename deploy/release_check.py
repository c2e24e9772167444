"""Check a release: build what is published, install it in a clean place, run it.

The version is that of `pyproject.toml`, and all else that names it must agree: the
chart, the pages, the headings of `CHANGELOG.md`. Wheel and sdist are built from what is
committed; the wheel of the sdist must have the same files, and is the one that is run.
The chart is packed by Helm, and what each Helm makes of the package, in a place with
nothing else, must be what it makes of the folder.

Run it as ``python -m deploy.release_check``, with both Helms where the end-to-end suite
has them: ``python tests/e2e/build.py --chart`` builds them.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e import build as tools

ROOT: Final = Path(__file__).resolve().parents[1]

START_SECONDS: Final = 90.0

POLL_SECONDS: Final = 0.05

# Builds with the pinned setuptools of whoever runs it; nothing is fetched.
BUILD: Final = "import sys, setuptools.build_meta as b; print(b.{}(sys.argv[1]))"

# file -> what stands before a version of ours
MENTIONS: Final = {
    "docs/install.md": r"VERSION=|gpu-extender:|gpu-extender ",
    "deploy/image/Dockerfile": r"VERSION=|REPOSITORY:",
}

NAME: Final = "gpu-extender"

# Values that the chart is rendered with: both modes, and what each adds.
RENDERED: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"scheduler": {"enabled": False}},
    {"metrics": {"prometheusRule": {"enabled": True}}, "grafana": {"enabled": True}},
)


class ReleaseError(RuntimeError):
    """Something that must not be published."""


def read_version() -> str:
    """Return the version of `pyproject.toml`, the only place where it is set."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def find_other_versions(root: Path, version: str) -> Iterator[str]:
    """Yield a sentence for each place that names another version."""
    for name, before in MENTIONS.items():
        text = (root / name).read_text(encoding="utf-8")
        for found in re.findall(rf"(?:{before})(\d+\.\d+\.\d+\S*)", text):
            if found != version:
                yield f"{name}: wanted {version}, got {found}"
    chart = root / "deploy" / "chart" / "Chart.yaml"
    if chart.exists():
        tree = yaml.safe_load(chart.read_text(encoding="utf-8"))
        for key in ("version", "appVersion"):
            if str(tree.get(key)) != version:
                wanted = f"wanted {version}, got {tree.get(key)}"
                yield f"deploy/chart/Chart.yaml: {key}: {wanted}"
    yield from _check_headings(root, version)


def _check_headings(root: Path, version: str) -> Iterator[str]:
    """Yield faults of the changelog: releases go down, and none is newer than ours."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^## (.+)$", text)
    numbers = []
    for place, heading in enumerate(headings):
        if heading == "Unreleased" and place == 0:
            continue
        found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - \d{4}-\d{2}-\d{2}", heading)
        if found is None:
            wanted = "wanted a release such as 1.2.3 - 2026-11-29"
            yield f"CHANGELOG.md: {wanted}, got {heading!r}"
        else:
            numbers.append(tuple(map(int, found.groups())))
    ours = tuple(map(int, version.split(".")))
    if numbers != sorted(set(numbers), reverse=True):
        yield "CHANGELOG.md: wanted the newest release first, each once"
    if numbers and max(numbers) > ours:
        yield f"CHANGELOG.md: wanted no release after {version}"


def run(*command: str | Path, **options: Any) -> str:
    """Return what a command prints; raise `ReleaseError` if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603  our own
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        told = (done.stderr or done.stdout)[-2000:]
        raise ReleaseError(f"{' '.join(map(str, command[:4]))}: {told}")
    return done.stdout


def build(source: Path, kind: str, into: Path) -> Path:
    """Build a wheel or an sdist from a folder; return the file."""
    into.mkdir(parents=True, exist_ok=True)
    script = BUILD.format(f"build_{kind}")
    printed = run(sys.executable, "-c", script, into, cwd=source)
    return into / printed.splitlines()[-1]


def copy_committed(into: Path) -> None:
    """Write out what is committed."""
    archive = into.with_suffix(".tar")
    run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")


def files_of(wheel: Path) -> dict[str, int]:
    """Return file -> checksum of a wheel, but for the record of them."""
    with zipfile.ZipFile(wheel) as packed:
        return {
            item.filename: item.CRC
            for item in packed.infolist()
            if not item.filename.endswith("/RECORD")
        }


def build_all(folder: Path, version: str) -> Path:
    """Build wheel and sdist; return the sdist's wheel, which has the same files."""
    copy_committed(folder / "source")
    shutil.copytree(folder / "source", folder / "for-the-sdist")
    sdist = build(folder / "for-the-sdist", "sdist", folder / "dist")
    direct = build(folder / "source", "wheel", folder / "direct")
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    wheel = build(unpacked, "wheel", folder / "dist")
    if wheel.name.split("-")[1] != version:
        raise ReleaseError(f"wheel: wanted {version}, got {wheel.name}")
    ours, theirs = files_of(direct), files_of(wheel)
    if ours != theirs:
        odd = sorted(set(ours.items()) ^ set(theirs.items()))
        raise ReleaseError(f"the wheel of the sdist has other files: {odd[:5]}")
    return wheel


def pack_chart(helm: Path, chart: Path, into: Path) -> Path:
    """Pack a chart; return the file."""
    into.mkdir(parents=True, exist_ok=True)
    printed = run(helm, "package", chart, "--destination", into)
    return Path(printed.strip().rpartition(": ")[2])


def find_faults_of_package(
    package: Path, chart: Path, version: str, helms: Sequence[Path], clean: Path
) -> Iterator[str]:
    """Yield what is wrong with a packed chart: its version, or what is made of it.

    Parameters
    ----------
    package, chart : Path
        The packed chart, and the folder that it was made of.
    helms : sequence of Path
        Each must make the same of both.
    clean : Path
        A new folder, in which nothing but the package is.
    """
    if package.name != f"{NAME}-{version}.tgz":
        yield f"wanted {NAME}-{version}.tgz, got {package.name}"
    with tarfile.open(package) as packed:
        member = packed.extractfile(f"{NAME}/Chart.yaml")
        tree = yaml.safe_load(member.read()) if member else {}
    for key in ("version", "appVersion"):
        if str(tree.get(key)) != version:
            yield f"{package.name}: {key}: wanted {version}, got {tree.get(key)}"
    clean.mkdir(parents=True)
    shutil.copy(package, clean)
    for helm in helms:
        for values in RENDERED:
            ours = render(helm, chart, values, clean)
            if render(helm, clean / package.name, values, clean) != ours:
                yield f"{package.name}: {helm.name} makes other objects of the folder"


def render(helm: Path, chart: Path, values: Mapping[str, Any], home: Path) -> str:
    """Return what Helm makes of a chart, run in a folder that is also its home."""
    given = {"image": {"repository": f"registry.invalid/{NAME}"}, **values}
    homes = {f"HELM_{kind}_HOME": str(home) for kind in ("CACHE", "CONFIG", "DATA")}
    command = (helm, "template", NAME, chart, "--namespace", NAME, "--values", "-")
    minor = f"--kube-version={tools.DEFAULT_MINOR}.0"
    text = yaml.safe_dump(given)
    return run(*command, minor, input=text, cwd=home, env={**os.environ, **homes})


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel with its pinned requirements; return the command."""
    venv.create(folder, with_pip=True)
    pip = (
        *(folder / "bin" / "python", "-m", "pip", "--quiet"),
        *("--disable-pip-version-check", "install"),
    )
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt")
    run(*pip, "--no-deps", wheel)
    return folder / "bin" / "gpu-extender"


def check_chart(folder: Path, version: str) -> None:
    """Pack the chart that is committed; raise `ReleaseError` if it is faulty."""
    names = tuple(tools.HELMS)
    helms = list(tools.locate(tools.DEFAULT_MINOR, names).values())
    chart = folder / "source" / "deploy" / "chart"
    package = pack_chart(helms[-1], chart, folder / "dist")
    clean = folder / "clean-chart"
    faults = list(find_faults_of_package(package, chart, version, helms, clean))
    if faults:
        raise ReleaseError("\n".join(faults))


def check_command(command: Path, version: str) -> None:
    """Raise `ReleaseError` unless the command tells its version and serves the demo."""
    told = run(command, "--version", cwd="/").strip()
    if told != f"gpu-extender {version}":
        raise ReleaseError(f"--version: wanted gpu-extender {version}, got {told}")
    config = ROOT / "configs" / "demo.yaml"
    run(command, "check-config", config, cwd="/")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603  what was installed
            [command, "serve", "--config", config, "--port", "0"], stderr=log, cwd="/"
        )
        try:
            _wait_ready(process, log)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(START_SECONDS)
    if process.returncode != 0:
        raise ReleaseError(f"serve: ended with {process.returncode}")


def _wait_ready(process: "subprocess.Popen[bytes]", log: Any) -> None:
    """Wait until a started service is ready for kube-scheduler."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        whole, _, _ = log.read().rpartition(b"\n")  # the last line may be half there
        lines = [json.loads(line) for line in whole.splitlines()]
        serving = [line for line in lines if line["event"] == "serving"]
        if serving:
            port = int(serving[0]["address"].rpartition(":")[2])
            if _status(port, "/readyz/extender") == http.client.OK:
                return
        time.sleep(POLL_SECONDS)
    log.seek(0)
    raise ReleaseError(f"serve: not ready: {log.read()[-2000:].decode()}")


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check it; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build" / "release", help="for the files"
    )
    folder: Path = parser.parse_args(arguments).into.resolve()
    version = read_version()
    faults = list(find_other_versions(ROOT, version))
    if faults:
        sys.stderr.write("\n".join(faults) + "\n")
        return 1
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        wheel = build_all(folder, version)
        check_chart(folder, version)
        check_command(install(wheel, folder / "clean"), version)
    except (ReleaseError, tools.BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    made = sorted(path.name for path in (folder / "dist").iterdir())
    sys.stdout.write(f"{version}: {', '.join(made)} in {folder / 'dist'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
