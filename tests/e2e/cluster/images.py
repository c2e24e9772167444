"""Files of the images that pods name: that of gpu-extender, and kube-scheduler's."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PRODUCT: Final = "gpu-extender"
SCHEDULER: Final = "kube-scheduler"
PACKAGES: Final = ("cluster", "extender", "injector", "scoring", "service", "simulator")
# Of the machine, in place of a distribution's base.
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PATH: Final = "/run/bin:/opt/gpu-extender/bin:/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """What a container has before its volumes.

    Attributes
    ----------
    binds : sequence of (str, str)
        File or folder of the machine, and where it is.
    links : mapping
        Symbolic link -> target.
    command : sequence of str
        Its entry point, for a container that names none.
    arguments : sequence of str
    user, group : int
    """

    binds: Sequence[tuple[str, str]] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    arguments: Sequence[str] = ()
    user: int = 0
    group: int = 0


class Images:
    """Finds an image by its reference, whatever the registry.

    Parameters
    ----------
    tree : Path
        The files of gpu-extender's image, as `make image-tree` builds them.
    scheduler : Path
        The binary of kube-scheduler.
    source : Path, optional
        A checkout, whose packages are in the image in place of those of the tree.
    """

    def __init__(self, tree: Path, scheduler: Path, source: Path | None = None) -> None:
        self._tree = tree
        self._source = source
        self._scheduler = scheduler
        self._python = Path(sys.base_prefix)

    def find(self, reference: str) -> Image | None:
        """Return an image; None for one whose containers do nothing here."""
        name = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
        if name == PRODUCT:
            return self._product()
        if name == SCHEDULER:
            binary = (str(self._scheduler), "/opt/kubernetes/kube-scheduler")
            link = {"/run/bin/kube-scheduler": binary[1]}
            return Image((binary, *_devices()), link, ["kube-scheduler"])
        return None

    def _product(self) -> Image:
        python = self._python
        system = [name for name in SYSTEM if Path(name).exists()]
        links = {
            name: str(Path(name).readlink())
            for name in system
            if Path(name).is_symlink()
        }
        folders = [name for name in (*system, "/etc/ssl") if name not in links]
        binds = [(name, name) for name in folders]
        if not python.is_relative_to("/usr"):
            binds.append((str(python), str(python)))
        return Image(
            binds=(
                *binds,
                ("/proc", "/proc"),
                *_devices(),
                (str(self._tree / "opt"), "/opt"),
                *self._from_source(),
            ),
            # Before the machine's own, which may be another.
            links={**links, "/run/bin/python3": str(python / "bin" / "python3")},
            command=["/opt/gpu-extender/bin/gpu-extender"],
            arguments=["serve", "--config", "/etc/gpu-extender/config.yaml"],
            user=10001,
        )

    def _from_source(self) -> Iterator[tuple[str, str]]:
        if self._source is not None:
            for name in PACKAGES:
                package = self._source.resolve() / name
                yield str(package), f"/opt/gpu-extender/lib/{name}"


def _devices() -> list[tuple[str, str]]:
    return [(name, name) for name in DEVICES]
