"""The version before this one, out of git: its files, and its own environment."""

import functools
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from tests.service_process import ROOT

# What the first release comes after.
BEFORE_ANY_TAG: Final = "093d5e8"
TAGS: Final = "v[0-9]*"
INSTALL: Final = ("install", "--quiet", "--disable-pip-version-check")


@functools.cache
def older_version() -> str | None:
    """Return tag or commit of the version before what is checked out.

    That is the newest tag below the commit that is checked out; None where the clone
    does not reach back to it.
    """
    described = _git("describe", "--tags", "--abbrev=0", f"--match={TAGS}", "HEAD^")
    name = described.strip() or BEFORE_ANY_TAG
    return (
        name if _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") else None
    )


def read_older(name: str, path: str) -> str:
    """Return the text of a file of a version."""
    return _git("show", f"{name}:{path}")


def take_out(name: str, folder: Path) -> Path:
    """Write the files of a version into a new folder, and return that."""
    archive = folder.with_suffix(".tar")
    _git("archive", f"--output={archive}", name)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


def make_environment(source: Path, folder: Path) -> Path:
    """Make a virtual environment of what a version pins; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)  # noqa: S603
    python = folder / "bin" / "python"
    pinned = source / "requirements" / "runtime.txt"
    subprocess.run(  # noqa: S603  what that version asks for, by hash
        [python, "-m", "pip", *INSTALL, "--require-hashes", "-r", pinned], check=True
    )
    return python


def _git(*arguments: str) -> str:
    """Return what git prints; nothing where it fails, or is not there."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(  # noqa: S603  git alone
            ["git", *arguments],  # noqa: S607
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
