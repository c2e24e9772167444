"""Build the control plane that the end-to-end tests run, once per version.

Each folder of ``controlplane/`` is a Go module that names commands and nothing else:
one per Kubernetes minor, and one for etcd; that of ``port-forwarder`` has a program of
its own. The binaries go to ``.cache/<minor>/bin``, and are rebuilt when the module's
``go.mod``, ``go.sum`` or program changes. With ``KUBEBUILDER_ASSETS`` set, the binaries
in that folder are used instead, and only those that it lacks are built.

Run it as ``python tests/e2e/build.py [--minor 1.36] [--chart]``; with ``--chart`` it
builds kubectl and both Helms alone, and unpacks Debian's package of Prometheus where
the PATH has none. Exit codes: 0 all there, 1 a build failed, 2 wrong options or
binaries of another minor, 3 Go or apt-get is missing.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
MODULES: Final = HERE / "controlplane"
CACHE: Final = HERE / ".cache"
DEFAULT_MINOR: Final = "1.36"
KUBERNETES_COMMANDS: Final = (
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kubectl",
)
# command -> Go package, and the module folder where it is not the minor's own
PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "port-forwarder": ".",
    **{name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_COMMANDS},
}
# What `make chart` needs beside kubectl, each in a module of its own.
HELMS: Final[Mapping[str, str]] = {
    f"helm-{major}": f"helm.sh/helm/v{major}/cmd/helm" for major in (3, 4)
}
PROMETHEUS: Final = ("promtool", "prometheus")
CHART_TOOLS: Final = ("kubectl", *HELMS, *PROMETHEUS)
PROGRESS_SECONDS: Final = 30.0


class BuildError(RuntimeError):
    """A binary is missing and could not be built."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def say(line: str) -> None:
    """Print a line at once: a build is silent for minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def minors() -> tuple[str, ...]:
    """Return the Kubernetes minors that have a module, oldest first."""
    names = (p.name for p in MODULES.iterdir() if re.fullmatch(r"1\.\d+", p.name))
    return tuple(sorted(names, key=lambda name: int(name.split(".")[1])))


def chosen_minor() -> str:
    """Return the minor named by the environment variable K8S, or the default."""
    minor = os.environ.get("K8S") or DEFAULT_MINOR
    if minor not in minors():
        known = ", ".join(minors())
        raise BuildError(f"K8S: wanted one of {known}, got {minor!r}", 2)
    return minor


def locate(minor: str, names: Iterable[str] = PACKAGES) -> dict[str, Path]:
    """Return where each command of a minor is, without building anything."""
    found = {name: _path(minor, name) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise BuildError(
            f"no binary of {', '.join(missing)} for Kubernetes {minor}: "
            f"run python tests/e2e/build.py --minor {minor}"
        )
    return {name: path for name, path in found.items() if path is not None}


def ensure(minor: str, names: Iterable[str] = PACKAGES) -> None:
    """Build what a minor lacks and check what `KUBEBUILDER_ASSETS` offers."""
    for name in names:
        asset = _asset(name)
        if asset is not None:
            _check_asset(asset, minor)
            say(f"{name}: {asset}")
            continue
        if os.environ.get("KUBEBUILDER_ASSETS"):
            say(f"{name}: not in KUBEBUILDER_ASSETS, taken from our own build")
        path = _path(minor, name)
        if path is None:
            path = _unpack(name) if name in PROMETHEUS else _build(minor, name)
        say(f"{name}: {path}")


def _module(minor: str, name: str) -> str:
    return minor if name in KUBERNETES_COMMANDS else name


def _asset(name: str) -> Path | None:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    path = Path(folder) / name
    return path if path.is_file() else None


def _path(minor: str, name: str) -> Path | None:
    """Return the asset, or the cached binary if it is of the module as it is now."""
    asset = _asset(name)
    if asset is not None:
        return asset
    if name in PROMETHEUS:
        installed = shutil.which(name)
        path = Path(installed) if installed else CACHE / "prometheus/usr/bin" / name
        return path if path.is_file() else None
    module = _module(minor, name)
    path = CACHE / module / "bin" / name
    key = CACHE / module / "key"
    if path.is_file() and key.is_file() and key.read_text() == _key(module):
        return path
    return None


def _key(module: str) -> str:
    digest = hashlib.sha256()
    folder = MODULES / module
    for path in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _check_asset(path: Path, minor: str) -> None:
    """Refuse a Kubernetes binary of a minor that was not asked for."""
    if path.name not in KUBERNETES_COMMANDS:
        return
    option = ["version", "--client"] if path.name == "kubectl" else ["--version"]
    answer = subprocess.run(
        [path, *option], capture_output=True, text=True, check=False
    )
    found = re.search(r"v(1\.\d+)\.", answer.stdout)
    got = found.group(1) if found else (answer.stdout + answer.stderr).strip()[:80]
    if got != minor:
        raise BuildError(f"{path}: wanted Kubernetes {minor}, got {got!r}", 2)


def _build(minor: str, name: str) -> Path:
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            f"{name}: wanted the go command to build it, got none on the PATH; "
            "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a folder with "
            f"{', '.join(PACKAGES)}",
            3,
        )
    module = _module(minor, name)
    folder = _clean_folder(module)
    partial = folder / f"{name}.partial"
    command = [go, "build", "-trimpath", "-buildvcs=false"]
    command += ["-ldflags", _linker_flags(module), "-o", str(partial)]
    command += [{**PACKAGES, **HELMS}[name]]
    say(f"{name}: building it from controlplane/{module}")
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=MODULES / module, env={**os.environ, "CGO_ENABLED": "0"}
    ) as process:
        while (exit_code := _wait(process)) is None:
            say(f"{name}: still building, {time.monotonic() - started:.0f} s")
    if exit_code != 0:
        raise BuildError(f"{name}: go build ended with {exit_code}")
    # Renamed when complete, so that an interrupted build leaves no half binary.
    path = partial.replace(folder / name)
    say(f"{name}: built in {time.monotonic() - started:.0f} s")
    return path


def _unpack(name: str) -> Path:
    """Unpack Debian's package of Prometheus; it is not installed, and needs no root."""
    if shutil.which("apt-get") is None:
        raise BuildError(
            f"{name}: wanted it on the PATH, or apt-get to fetch it, got neither; "
            "install Prometheus",
            3,
        )
    say(f"{name}: unpacking Debian's package prometheus")
    folder = CACHE / "prometheus.partial"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    download = ["apt-get", "--quiet", "download", "prometheus"]
    try:
        _run(download, folder)
    except BuildError:  # the lists of packages are missing, or older than the archive
        _run(["apt-get", "--quiet", "update"], folder)
        _run(download, folder)
    (package,) = folder.glob("prometheus_*.deb")
    _run(["dpkg-deb", "--extract", package.name, "."], folder)
    package.unlink()
    complete = CACHE / "prometheus"
    shutil.rmtree(complete, ignore_errors=True)
    return folder.replace(complete) / "usr/bin" / name


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(
            f"{' '.join(command)} ended with {done.returncode}:"
            f" {done.stderr.strip()[-200:]}"
        )


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(PROGRESS_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _clean_folder(module: str) -> Path:
    """Return the folder of binaries, emptied if they are of another version."""
    folder = CACHE / module
    key = folder / "key"
    if not key.is_file() or key.read_text() != _key(module):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "bin").mkdir(parents=True)
        key.write_text(_key(module))
    return folder / "bin"


def _linker_flags(module: str) -> str:
    """Return flags that strip the binary and tell Kubernetes its own version."""
    flags = ["-s", "-w"]
    text = (MODULES / module / "go.mod").read_text()
    version = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\.\d+)", text)
    if version:
        prefix = "k8s.io/component-base/version"
        full, major, minor = version.groups()
        flags += ["-X", f"{prefix}.gitVersion=v{full}"]
        flags += ["-X", f"{prefix}.gitMajor={major}"]
        flags += ["-X", f"{prefix}.gitMinor={minor}"]
    return " ".join(flags)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build one minor and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minor", choices=minors(), help="default: K8S, then 1.36")
    parser.add_argument(
        "--chart", action="store_true", help="tools of make chart alone"
    )
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        minor = options.minor or chosen_minor()
        ensure(minor, CHART_TOOLS if options.chart else PACKAGES)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    say(f"Kubernetes {minor} is ready after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
