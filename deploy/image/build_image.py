"""Build the image by buildah, without an engine that runs containers, and measure it.

The base is an image that `--base` names, or else the machine's own release of Debian
with its Python, made by debootstrap: no registry of images is needed. Steps of the
Dockerfile run in a chroot; all this happens in namespaces of its own, so that neither
a process nor a mount is left, and lies in `build/image`.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deploy.image.build_tree import MAX_LAYER_BYTES, ROOT, TreeError, run

HERE: Final = ROOT / "build" / "image"

NAME: Final = "localhost/gpu-extender"

# The exit code where the machine lacks something; 1 is for a build that failed.
CANNOT_BUILD: Final = 3

# What ends with the build, however it ends.
APART: Final = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--propagation", "private"),
)

COMMANDS: Final = ("unshare", "buildah")

# For a base of ours, beside `COMMANDS`.
BASE_COMMANDS: Final = ("debootstrap", "apt-get")

BASE_PACKAGES: Final = ("ca-certificates", "python3", "python3-pip")

# Folders of the base whose files nobody needs again.
LEFTOVERS: Final = ("var/cache/apt", "var/lib/apt/lists", "var/log")

# What pip is told about where packages are, that holds in the build, too.
PIP_SETTINGS: Final = frozenset(
    {"cert", "extra-index-url", "index-url", "proxy", "timeout", "trusted-host"}
)


def find_missing(base: str | None = None) -> str | None:
    """Return what keeps this machine from building an image, None if nothing does."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "user: wanted root, which may change the root of a process"
    for name in COMMANDS if base else (*COMMANDS, *BASE_COMMANDS):
        if shutil.which(name) is None:
            return f"{name}: wanted it on the PATH, got none; install its package"
    probe = [*APART, "true"]
    done = subprocess.run(  # noqa: S603  ours
        probe, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return f"namespaces: wanted the right to make them, got {done.stderr.strip()!r}"
    return None


def buildah(*arguments: str | Path) -> str:
    """Return what buildah prints, on a storage of our own."""
    where = ("--root", HERE / "storage", "--runroot", HERE / "run")
    return run("buildah", *where, "--storage-driver", "vfs", *arguments).strip()


def ensure_base() -> str:
    """Return the name of a base of ours, which is made once for each release."""
    release = read_release(Path("/etc/os-release").read_text())
    name = f"{NAME}-base:{release}"
    if name in buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        return name
    say(f"base: Debian {release} with its Python, by debootstrap")
    container = buildah("from", "scratch")
    try:
        root = Path(buildah("mount", container))
        included = f"--include={','.join(BASE_PACKAGES)}"
        run(
            "debootstrap", "--variant=minbase", included, release, root, mirror(release)
        )
        for folder in LEFTOVERS:
            shutil.rmtree(root / folder, ignore_errors=True)
        buildah("commit", container, name)
    finally:
        buildah("rm", container)
    return name


def read_release(text: str) -> str:
    """Return the name of a distribution's release, as its archive has it."""
    found = re.search(r'(?m)^VERSION_CODENAME="?(\w+)"?$', text)
    if found is None:
        raise TreeError("/etc/os-release: wanted a VERSION_CODENAME, got none")
    return found[1]


def mirror(release: str) -> str:
    """Return the address that apt has a release from."""
    listing = ("indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)")
    wanted = (
        *listing,
        "Created-By: Packages",
        f"Release: {release}",
        "Component: main",
    )
    printed = run("apt-get", *wanted)
    if not printed:  # it tells only those whose lists are there
        run("apt-get", "--quiet", "update")
        printed = run("apt-get", *wanted)
    if not printed:
        raise TreeError(f"apt-get: wanted a source of {release} main, got none")
    return printed.split()[0]


def read_pip_settings(text: str) -> Mapping[str, str]:
    """Return what `pip config list` prints of where packages are; variables win."""
    found: dict[str, str] = {}
    # Sorted, variables come first, then files.
    for line in sorted(text.splitlines(), reverse=True):
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting in PIP_SETTINGS:
            found[setting] = ast.literal_eval(value)
    return found


def pip_volumes() -> Iterator[str]:
    """Yield volumes for the build, so that its pip finds packages where ours does."""
    settings = read_pip_settings(run(sys.executable, "-m", "pip", "config", "list"))
    lines = [f"{name} = {value}" for name, value in sorted(settings.items())]
    file = HERE / "pip.conf"
    file.touch(mode=0o600)
    file.write_text("\n".join(["[global]", *lines, ""]).replace("\n\n", "\n"))
    yield from ("--volume", f"{file}:/etc/pip.conf:ro")
    if "cert" in settings:
        yield from ("--volume", f"{settings['cert']}:{settings['cert']}:ro")


def build(base: str, pull: str) -> str:
    """Build the image; return its name and size in a sentence."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = f"{NAME}:{project['version']}"
    arguments = {
        "BASE": base,
        "VERSION": project["version"],
        "REVISION": run("git", "-C", ROOT, "rev-parse", "HEAD").strip(),
    }
    say(f"image: the steps of the Dockerfile on {base}")
    buildah(
        *("bud", "--isolation", "chroot", pull, *pip_volumes()),
        *(f"--build-arg={key}={value}" for key, value in arguments.items()),
        *("--file", ROOT / "deploy" / "image" / "Dockerfile", "--tag", name, ROOT),
    )
    return f"{name}: {measure(name, base)}"


def measure(name: str, base: str) -> str:
    """Return the size of what lies on the base; raise `TreeError` beyond the limit."""
    layout = HERE / "oci"
    shutil.rmtree(layout, ignore_errors=True)
    buildah("push", name, f"oci:{layout}:image")
    described = json.loads(buildah("inspect", "--type", "image", base))
    return check_layers(layout, len(described["OCIv1"]["rootfs"]["diff_ids"]))


def read_layout(layout: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return manifest and configuration of the one image of a folder (OCI layout)."""

    def read(entry: Mapping[str, Any]) -> Any:
        algorithm, _, digest = entry["digest"].partition(":")
        return json.loads((layout / "blobs" / algorithm / digest).read_text())

    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = read(entry)
    return manifest, read(manifest["config"])


def check_layers(layout: Path, of_base: int) -> str:
    """Return the size of all layers but those of the base, as registries have them."""
    layers = read_layout(layout)[0]["layers"][of_base:]
    size = sum(layer["size"] for layer in layers)
    sentence = f"{size / 1e6:.1f} MB compressed on the base"
    if size > MAX_LAYER_BYTES:
        limit = f"{MAX_LAYER_BYTES / 1e6:g} MB"
        raise TreeError(f"image: wanted at most {limit}, got {sentence}")
    return sentence


def say(line: str) -> None:
    """Print a line at once: each step takes a minute."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="an image with Python and pip, from a registry")
    parser.add_argument(
        "--base-only",
        action="store_true",
        help="make the base, or tell why it cannot be",
    )
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    missing = None if options.apart else find_missing(options.base)
    if missing:
        say(missing)
        return CANNOT_BUILD
    if not options.apart:
        again = [*APART, sys.executable, "-m", "deploy.image.build_image", "--apart"]
        given = sys.argv[1:] if arguments is None else arguments
        return subprocess.call([*again, *given], cwd=ROOT)  # noqa: S603  this file
    HERE.mkdir(parents=True, exist_ok=True)
    try:
        base = options.base or ensure_base()
    except TreeError as error:
        say(f"base: {error}")
        return CANNOT_BUILD
    if options.base_only:
        return 0
    try:
        say(build(base, "--pull-always" if options.base else "--pull-never"))
    except TreeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
