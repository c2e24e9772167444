"""What the build says when it cannot go on."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e import build

SCRIPT: Final = Path(build.__file__).resolve()


def run_build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the build as `make` does, with some of the environment replaced."""
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def write_command(folder: Path, name: str, output: str) -> None:
    """Write a command that prints one line."""
    command = folder / name
    command.write_text(f"#!/bin/sh\necho '{output}'\n")
    command.chmod(0o755)


def test_go_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(build.BuildError, match="wanted the go command") as fault:
        build.ensure(build.DEFAULT_MINOR)

    assert fault.value.exit_code == 3


def test_a_build_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_command(tmp_path, "go", "no room left' >&2; exit 1; echo '")
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(build.BuildError, match="etcd: go build ended with 1"):
        build.ensure(build.DEFAULT_MINOR)


def test_a_missing_binary_is_named_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(build.BuildError, match=r"build\.py --minor 1\.36"):
        build.locate("1.36")


def test_prometheus_is_unpacked_where_none_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    write_command(commands, "apt-get", "x' > prometheus_1.deb; : '")
    write_command(commands, "dpkg-deb", "x'; mkdir -p usr/bin; : > usr/bin/promtool '")
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(
        "shutil.which", lambda name: None if name == "promtool" else name
    )
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    build.ensure(build.DEFAULT_MINOR, ["promtool"])

    (path,) = build.locate(build.DEFAULT_MINOR, ["promtool"]).values()
    assert path == tmp_path / "cache/prometheus/usr/bin/promtool"


def test_prometheus_that_nobody_has_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(build.BuildError, match="install Prometheus") as fault:
        build.ensure(build.DEFAULT_MINOR, ["promtool"])

    assert fault.value.exit_code == 3


def test_a_module_that_changed_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "1.36"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "kubectl").touch()
    (folder / "key").write_text("of another version")
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(build.BuildError, match="kubectl"):
        build.locate("1.36")


def test_an_unknown_minor_is_refused() -> None:
    done = run_build(K8S="1.12")

    assert done.returncode == 2
    assert "K8S: wanted one of 1.34, 1.36, 1.37, got '1.12'" in done.stderr


def test_assets_are_used_as_they_are(tmp_path: Path, minor: str) -> None:
    for name in build.PACKAGES:
        write_command(tmp_path, name, f"Kubernetes v{minor}.9")

    done = run_build("--minor", minor, KUBEBUILDER_ASSETS=str(tmp_path))

    assert done.returncode == 0
    assert [f"{name}: {tmp_path / name}" for name in build.PACKAGES] == (
        done.stdout.splitlines()[:-1]
    )


def test_assets_without_a_scheduler_say_where_it_comes_from(
    tmp_path: Path, minor: str
) -> None:
    for name in ("etcd", "kube-apiserver", "kubectl"):
        write_command(tmp_path, name, f"Kubernetes v{minor}.9")

    done = run_build("--minor", minor, KUBEBUILDER_ASSETS=str(tmp_path))

    assert done.returncode == 0
    assert "kube-scheduler: not in KUBEBUILDER_ASSETS" in done.stdout
    assert "kube-apiserver: not in" not in done.stdout


def test_assets_of_another_minor_are_refused(tmp_path: Path) -> None:
    for name in build.PACKAGES:
        write_command(tmp_path, name, "Kubernetes v1.20.3")

    done = run_build("--minor", "1.36", KUBEBUILDER_ASSETS=str(tmp_path))

    assert done.returncode == 2
    assert "wanted Kubernetes 1.36, got '1.20'" in done.stderr
