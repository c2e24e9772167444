"""What building the image wants of a machine, and what it takes from it."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.image import build_image
from deploy.image.build_image import (
    CANNOT_BUILD,
    check_layers,
    find_missing,
    main,
    mirror,
    pip_volumes,
    read_layout,
    read_pip_settings,
    read_release,
)
from deploy.image.build_tree import TreeError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be root on a machine with all commands; return their folder."""
    for name in (*build_image.COMMANDS, *build_image.BASE_COMMANDS):
        write_command(tmp_path / name, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def write_command(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("machine")
def test_a_machine_with_all_that_is_wanted_lacks_nothing() -> None:
    assert find_missing() is None
    assert main(["--base-only"]) == 0


def test_a_base_that_cannot_be_made_is_no_failed_build(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_command(machine / "buildah", "echo 'no room left' >&2; exit 1")

    status = main(["--apart", "--base-only"])

    assert status == CANNOT_BUILD
    assert capsys.readouterr().out.rstrip().endswith("no room left")


@pytest.mark.parametrize(
    ("name", "base", "is_wanted"),
    [
        ("unshare", None, True),
        ("buildah", None, True),
        ("debootstrap", None, True),
        ("apt-get", None, True),
        ("buildah", "a/base:1", True),
        ("debootstrap", "a/base:1", False),  # the base comes from elsewhere
    ],
)
def test_a_command_that_is_missing_is_named(
    machine: Path, name: str, base: str | None, is_wanted: bool
) -> None:
    (machine / name).unlink()

    said = f"{name}: wanted it on the PATH, got none; install its package"
    assert find_missing(base) == (said if is_wanted else None)


@pytest.mark.usefixtures("machine")
def test_a_user_without_rights_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert find_missing() == "user: wanted root, which may change the root of a process"


def test_a_sandbox_without_namespaces_is_no_green_build(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_command(machine / "unshare", "echo 'not permitted' >&2; exit 1")

    assert main([]) == CANNOT_BUILD
    said = "namespaces: wanted the right to make them, got 'not permitted'\n"
    assert capsys.readouterr().out == said


def test_the_release_is_that_of_the_machine() -> None:
    text = 'ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian"\n'

    assert read_release(text) == "bookworm"
    assert read_release('VERSION_CODENAME="noble"\n') == "noble"
    with pytest.raises(TreeError, match="wanted a VERSION_CODENAME, got none"):
        read_release("ID=arch\n")


def test_the_archive_is_the_one_of_apt_with_its_lists_or_without(machine: Path) -> None:
    lists = machine / "lists"
    update = f'case "$*" in *update*) : > {lists};; esac'
    listing = f"[ -e {lists} ] && echo mirror: bookworm main; exit 0"
    write_command(machine / "apt-get", f"{update}\n{listing}")

    assert mirror("bookworm") == "mirror:"


@pytest.mark.usefixtures("machine")
def test_no_source_of_the_release_is_named() -> None:
    with pytest.raises(TreeError, match="wanted a source of sid main, got none"):
        mirror("sid")


def test_variables_of_pip_go_before_its_files() -> None:
    text = (
        ":env:.cert='/a.pem'\n:env:.find-links='/b'\nglobal.cert='/c.pem'\n"
        "global.timeout='9'\nglobal.trusted-host='d e'\n"
    )

    wanted = {"cert": "/a.pem", "timeout": "9", "trusted-host": "d e"}
    assert read_pip_settings(text) == wanted
    assert read_pip_settings("") == {}


def test_the_build_finds_packages_as_pip_does_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_image, "HERE", tmp_path)
    monkeypatch.setattr(
        build_image, "run", lambda *_: "global.cert='/a.pem'\nglobal.timeout='9'\n"
    )

    file = tmp_path / "pip.conf"
    assert list(pip_volumes()) == [
        *("--volume", f"{file}:/etc/pip.conf:ro"),
        *("--volume", "/a.pem:/a.pem:ro"),
    ]
    assert file.read_text() == "[global]\ncert = /a.pem\ntimeout = 9\n"
    assert file.stat().st_mode & 0o077 == 0  # an address may have a password


def write_layout(folder: Path, sizes: Sequence[int]) -> None:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = {
        "config": {"digest": "sha256:c"},
        "layers": [{"size": size} for size in sizes],
    }
    (blobs / "c").write_text('{"config": {"User": "1:0"}}')
    (blobs / "m").write_text(json.dumps(manifest))
    (folder / "index.json").write_text('{"manifests": [{"digest": "sha256:m"}]}')


def test_layers_of_the_base_do_not_count(tmp_path: Path) -> None:
    write_layout(tmp_path, [400_000_000, 30_000_000, 3_100_000])

    assert read_layout(tmp_path)[1] == {"config": {"User": "1:0"}}
    assert check_layers(tmp_path, 1) == "33.1 MB compressed on the base"
    with pytest.raises(TreeError, match=r"wanted at most 110 MB, got 433\.1 MB"):
        check_layers(tmp_path, 0)


def test_a_build_that_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(base: str, _: str) -> str:
        raise TreeError(f"image: wanted {base}, got nothing")

    monkeypatch.setattr(build_image, "build", fail)

    assert main(["--apart", "--base", "a/base:1"]) == 1
    assert capsys.readouterr().err == "image: wanted a/base:1, got nothing\n"


@pytest.mark.usefixtures("machine")
def test_the_build_runs_in_namespaces_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Sequence[str]] = []

    def call(command: Sequence[str], **_: object) -> int:
        told.append(command)
        return 7

    monkeypatch.setattr(subprocess, "call", call)

    assert main(["--base", "a/base:1"]) == 7
    (command,) = told
    assert command[0] == "unshare"
    assert command[-3:] == ["--apart", "--base", "a/base:1"]
