"""Build the files of the image beside its base, check that they start, measure them.

Hashed wheels and our own packages go into one folder, without what a service never
reads; bytecode is written for the modules that it imports, since the image's root is
read-only. It needs nothing but a Python with pip, so the Dockerfile calls it, too.
"""

import argparse
import gzip
import importlib.metadata
import io
import itertools
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]

HOME: Final = Path("opt", "gpu-extender")

LIBRARY: Final = HOME / "lib"

SBOM: Final = HOME / "sbom.cdx.json"

PACKAGES: Final = ("cluster", "extender", "injector", "scoring", "service", "simulator")

MAX_TREE_BYTES: Final = 130_000_000

MAX_LAYER_BYTES: Final = 110_000_000

# Relative to the library; what is matched goes, folders with all that is in them.
UNWANTED: Final = (
    "bin",
    "**/*.pyi",
    "**/py.typed",
    "*-stubs",
    "**/tests",
    "**/testing/tests",
    "**/*.a",
    "**/*.dist-info/RECORD",
    "**/*.dist-info/REQUESTED",
    "**/*.dist-info/INSTALLER",
    "**/*.dist-info/direct_url.json",
    "**/__pycache__",
    "pip",
    "pip-*",
    "setuptools",
    "setuptools-*",
    "kubernetes/aio",
    "kubernetes/e2e_test",
    "kubernetes/test",
    "numpy/distutils",
    "numpy/f2py",
    "numpy/conftest.py",
    "numpy/_core/include",
    "falcon/bench",
)

# Distributions that nothing but `kubernetes/aio` imports.
AIO_ONLY: Final = (
    "aiohappyeyeballs",
    "aiohttp",
    "aiohttp_retry",
    "aiosignal",
    "attr",
    "attrs",
    "frozenlist",
    "multidict",
    "propcache",
    "yarl",
)

# The Pythons that the image may have, oldest first.
PYTHONS: Final = ("3.11", "3.12", "3.13")

# machine -> its name in wheels
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}

# What `pip` may take for a machine, the newest first.
LINUXES: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")

START: Final = """\
#!/usr/bin/env python3
import sys

sys.path.insert(0, "/opt/gpu-extender/lib")

from service.commands.cli import main

sys.exit(main())
"""

# Prints the files of all modules of ours, and of all that they import.
LIST_IMPORTED: Final = """\
import importlib, json, pkgutil, sys
for package in sys.argv[2:]:
    for module in pkgutil.walk_packages([f"{sys.argv[1]}/{package}"], f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
print(json.dumps([file for file in files if file and file.endswith(".py")]))
"""


class TreeError(RuntimeError):
    """A tree that is not fit for the image."""


def run(*command: str | Path, **options: Any) -> str:
    """Return what a command prints; raise `TreeError` if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603  pip or ours
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        raise TreeError(f"{' '.join(map(str, command[:4]))}: {done.stderr[-2000:]}")
    return done.stdout


def pip(*arguments: str | Path) -> str:
    """Return what pip prints."""
    return run(
        *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"),
        *arguments,
    )


def pinned(text: str, name: str) -> str:
    """Return the lines of a requirement file that pin one package."""
    found = re.search(rf"(?m)^{re.escape(name)}==.*\n(?:[ \t]+--hash=.*\n)*", text)
    if found is None:
        raise TreeError(f"requirements: wanted a pin of {name}, got none")
    return found[0].rstrip(" \\\n") + "\n"


def install(tree: Path) -> None:
    """Put hashed wheels and our own one into the library."""
    library = tree / LIBRARY
    hashed = ("--require-hashes", "--only-binary", ":all:", "--no-compile")
    runtime = ROOT / "requirements" / "runtime.txt"
    pip("install", *hashed, "--target", library, "-r", runtime)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = folder / "build.txt"
        build.write_text(
            pinned((ROOT / "requirements" / "dev.txt").read_text(), "setuptools")
        )
        pip("install", *hashed, "--target", folder / "tools", "-r", build)
        source = folder / "source"
        copy_source(source)
        environment = {**os.environ, "PYTHONPATH": str(folder / "tools")}
        run(
            *(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", folder / "wheels", source),
            env=environment,
        )
        (wheel,) = (folder / "wheels").iterdir()
        pip("install", "--no-deps", "--no-compile", "--target", library, wheel)


def copy_source(into: Path) -> None:
    """Copy what our wheel is made of: setuptools writes beside it."""
    into.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, into)
    for package in PACKAGES:
        if (ROOT / package).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, into / package, ignore=ignore)


def prune(library: Path) -> None:
    """Take away what a service never reads."""
    apart = [end for name in AIO_ONLY for end in (name, f"{name}-*.dist-info")]
    for pattern in (*UNWANTED, *apart):
        for path in sorted(library.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def compile_imported(library: Path) -> int:
    """Write bytecode for all modules that ours import; return how many there are.

    It is taken as it is, whatever the time of the source: files of an image have none.
    """
    ours = [name for name in PACKAGES if (library / name).is_dir()]
    environment = {"PYTHONPATH": str(library), "PATH": os.environ.get("PATH", "")}
    python = (sys.executable, "-s", "-B", "-c", LIST_IMPORTED, str(library))
    listed: list[str] = json.loads(run(*python, *ours, cwd="/", env=environment))
    files = [Path(name) for name in listed if Path(name).is_relative_to(library)]
    for file in files:
        py_compile.compile(
            str(file),
            dfile=str("/" / LIBRARY / file.relative_to(library)),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    return len(files)


def list_components(library: Path) -> Iterator[dict[str, Any]]:
    """Yield each installed distribution, as CycloneDX has it."""
    found = importlib.metadata.distributions(path=[str(library)])
    for one in sorted(found, key=lambda one: one.name.lower()):
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        component: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": one.version,
            "purl": f"pkg:pypi/{name}@{one.version}",
        }
        if "License-Expression" in one.metadata:
            licence = one.metadata["License-Expression"]
            component["licenses"] = [{"expression": licence}]
        yield component


def write_sbom(tree: Path, version: str) -> None:
    """Write what is in the tree, in CycloneDX 1.6."""
    components = [
        one for one in list_components(tree / LIBRARY) if one["name"] != "gpu-extender"
    ]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "gpu-extender",
                "version": version,
                "purl": f"pkg:pypi/gpu-extender@{version}",
            }
        },
        "components": components,
    }
    (tree / SBOM).write_text(json.dumps(bill, indent=1) + "\n")


def finish(tree: Path) -> None:
    """Write the command, and let whoever runs the image read all and write nothing."""
    command = tree / HOME / "bin" / "gpu-extender"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(START)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    for path in (tree, *tree.rglob("*")):
        is_run = path.is_dir() or path == command
        path.chmod(0o555 if is_run else 0o444)
    for path in (*tree.rglob("*"), tree):
        os.utime(path, (seconds, seconds))


def discard(tree: Path) -> None:
    """Remove a tree that was built before, which nobody may write to."""
    for path in (tree, *tree.rglob("*")) if tree.exists() else ():
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(tree, ignore_errors=True)


def tree_bytes(tree: Path) -> int:
    """Return the size of all files together."""
    return sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())


class _Counter(io.RawIOBase):
    """Counts what is written."""

    def __init__(self) -> None:
        self.count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.count += len(data)
        return len(data)


def layer_bytes(tree: Path) -> int:
    """Return the size of the tree as a layer, compressed as registries have it."""
    counter = _Counter()
    with (
        gzip.GzipFile(fileobj=counter, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        archive.add(tree, arcname=".")
    return counter.count


def check_sizes(tree: Path) -> str:
    """Return both sizes in a sentence; raise `TreeError` beyond a limit."""
    unpacked, packed = tree_bytes(tree), layer_bytes(tree)
    sentence = f"{unpacked / 1e6:.1f} MB unpacked, {packed / 1e6:.1f} MB compressed"
    if unpacked > MAX_TREE_BYTES or packed > MAX_LAYER_BYTES:
        limits = f"{MAX_TREE_BYTES / 1e6:g} and {MAX_LAYER_BYTES / 1e6:g} MB"
        raise TreeError(f"tree: wanted at most {limits}, got {sentence}")
    return sentence


def check_wheels() -> None:
    """Raise `TreeError` unless every hashed wheel is there for all that we name.

    One folder takes them, so that a wheel for several Pythons is fetched once.
    """
    with tempfile.TemporaryDirectory() as folder:
        for python, machine in itertools.product(PYTHONS, MACHINES.values()):
            names = [f"{linux}_{machine}" for linux in LINUXES]
            platforms = [word for name in names for word in ("--platform", name)]
            pip(
                *("download", "--python-version", python, *platforms),
                *("--require-hashes", "--only-binary", ":all:", "--no-deps"),
                *("--dest", folder, "--requirement"),
                ROOT / "requirements" / "runtime.txt",
            )


def build(tree: Path) -> str:
    """Build the tree; return its sizes in a sentence."""
    discard(tree)
    (tree / LIBRARY).mkdir(parents=True)
    install(tree)
    prune(tree / LIBRARY)
    count = compile_imported(tree / LIBRARY)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    write_sbom(tree, project["version"])
    finish(tree)
    return f"{check_sizes(tree)}; {count} modules compiled"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "image-tree")
    parser.add_argument(
        "--check-wheels",
        action="store_true",
        help="only resolve the wheels, for each Python and machine",
    )
    options = parser.parse_args(arguments)
    try:
        if options.check_wheels:
            check_wheels()
            done = f"every wheel: Python {', '.join(PYTHONS)} on {', '.join(MACHINES)}"
        else:
            done = f"{options.into}: {build(options.into.resolve())}"
    except TreeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{done}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
