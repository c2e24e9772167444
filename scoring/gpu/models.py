"""The alias table: GPU models, and the names that stand for them."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from scoring.faults import Fault, FaultsError

GIB: Final = 2**30

Models: TypeAlias = frozenset[str]

_DROPPED: Final = re.compile(r"[^A-Za-z0-9._\s-]")

_JOINED: Final = re.compile(r"[\s_-]+")

_VENDOR_PREFIX: Final = "nvidia-"

# How drivers of virtual machines begin a name, the older ones with GRID.
_DRIVER_PREFIXES: Final = ("nvidia", "grid")

# The board, the slices of one that MIG has cut, frame buffer, series, extras.
_VIRTUAL: Final = re.compile(
    r"(?:grid-)?(?P<board>[a-z0-9-]+?)-(?:[1-9]-)?(?P<gib>\d{1,3})[abcq]"
    r"(?:4|me|nome|meall|gfx)?",
    re.ASCII,
)

# Characters: pods name models, too, at any length.
_MAX_REMEMBERED_NAME: Final = 128


def normal_name(text: str) -> str:
    """Return the form in which names of models are compared, whole.

    Small letters; characters that no label holds are dropped; each run of blanks,
    underscores and dashes is one dash; a leading ``NVIDIA-`` is dropped, since older
    drivers do not write it.

    >>> normal_name("NVIDIA A100-SXM4-80GB"), normal_name("A100-SXM4-80GB")
    ('a100-sxm4-80gb', 'a100-sxm4-80gb')
    """
    if len(text) > _MAX_REMEMBERED_NAME:
        return _normal_name(text)
    return _remembered_normal_name(text)


def _normal_name(text: str) -> str:
    kept = _JOINED.sub("-", _DROPPED.sub("", text)).strip("-").lower()
    return kept.removeprefix(_VENDOR_PREFIX)


_remembered_normal_name: Final = lru_cache(maxsize=4096)(_normal_name)


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One way to cut instances from a GPU.

    Attributes
    ----------
    name : str
        As ``nvidia-smi`` writes it, such as ``1g.10gb+me``.
    at_most : int
        Instances of it on one GPU.
    starts : tuple of int
        Memory slices at which one may begin.
    """

    name: str
    compute_slices: int
    memory_slices: int
    at_most: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model.

    Attributes
    ----------
    name : str
        The canonical one.
    memory : int
        Nominal size of one GPU in bytes.
    families : tuple of str
        Wider names that take it in.
    links : str
        Kind of link between several GPUs of a node; empty if unknown.
    mig : tuple of MigProfile
        Empty for a GPU that cannot be cut.
    names : tuple of str
        All other names.
    is_unified : bool
        Whether the memory is that of the system: what a label states is then what was
        left to the GPU at some time, and says nothing of the model.
    """

    name: str
    memory: int
    families: tuple[str, ...] = ()
    vendor: str = "nvidia"
    links: str = ""
    mig: tuple[MigProfile, ...] = ()
    names: tuple[str, ...] = ()
    is_unified: bool = False


@dataclass(frozen=True, slots=True)
class NameLists:
    """Names beside those that the models bring along.

    Attributes
    ----------
    aliases : mapping
        model or family -> more names of it
    label_names : mapping
        label key -> name -> the model or family that it means under that label
    no_model : tuple of str
        Names that say no more than that there is a GPU.
    boards : mapping
        board, as names of virtual GPUs call it -> its model
    """

    aliases: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    label_names: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    no_model: tuple[str, ...] = ()
    boards: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class GpuTableError(FaultsError):
    """An alias table in which names are shared or mean nothing.

    Its faults have no path.
    """


@dataclass(frozen=True, slots=True, eq=False)
class GpuTable:
    """Models by the names that stand for them.

    Attributes
    ----------
    models : mapping
        canonical name -> model
    names : mapping
        normal form of a name -> the models that it stands for
    label_names : mapping
        label key -> the same, for names that mean something else under that label
    no_model : frozenset of str
        Normal forms of the names that stand for no model.
    spellings : mapping
        normal form of a name -> how it is written
    boards : mapping
        board, as names of virtual GPUs call it, in normal form -> the same
    """

    models: Mapping[str, GpuModel]
    names: Mapping[str, Models]
    label_names: Mapping[str, Mapping[str, Models]]
    no_model: frozenset[str]
    spellings: Mapping[str, tuple[str, ...]]
    boards: Mapping[str, Models]

    def find(self, name: str, label: str = "") -> Models:
        """Return the models that `name` stands for; none for an unknown name."""
        normal = normal_name(name)
        scoped = self.label_names.get(label, {}).get(normal)
        return self.names.get(normal, frozenset()) if scoped is None else scoped

    def find_with_parts(self, name: str, label: str = "") -> tuple[Models, int]:
        """Return what `find` does, and of a virtual GPU its board and memory, bytes.

        Names of virtual GPUs say both: ``A10-4Q``, ``GRID-A100D-1-10CME``. Where the
        board is not known, a name that a driver writes tells of one all the same;
        others may be of something else, as ``Ascend-910B``.
        """
        models = self.find(name, label)
        found = None if models else _VIRTUAL.fullmatch(normal_name(name))
        if found is None:
            return models, 0
        models = self.boards.get(found["board"]) or self.find(found["board"])
        if not models and not name.strip().lower().startswith(_DRIVER_PREFIXES):
            return models, 0
        return models, int(found["gib"]) * GIB or GIB // 2  # 0 stands for 512 MiB

    def synonyms(self, name: str) -> frozenset[str]:
        """Return, in normal form, all names that stand for the same as `name`."""
        normal = normal_name(name)
        meant = self.names.get(normal)
        same = (other for other, models in self.names.items() if models == meant)
        return frozenset((normal, *same))

    def names_around(self, models: Models) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names that hold for all `models`, and those for some only."""
        sure = frozenset(name for name, found in self.names.items() if models <= found)
        some = frozenset(name for name, found in self.names.items() if models & found)
        return sure, some - sure


def build_table(models: Iterable[GpuModel], lists: NameLists) -> GpuTable:
    """Return the table; raise `GpuTableError` with every fault."""
    claims = _Claims()
    known: dict[str, GpuModel] = {}
    for model in models:
        if model.name in known:
            claims.faults.append(f"model {model.name!r} is defined twice")
        known[model.name] = model
    owners = _owners(known, claims.faults)
    for name, meant in owners.items():
        claims.add(name, name, meant)
    for model in known.values():
        for name in model.names:
            claims.add(name, model.name, owners[model.name])
    for owner, names in lists.aliases.items():
        for name in names:
            claims.add(name, owner, owners.get(owner))
    label_names = {
        label: _scoped(meanings, owners, claims.faults)
        for label, meanings in lists.label_names.items()
    }
    no_model = frozenset(map(normal_name, lists.no_model))
    claims.faults.extend(
        f"name {name!r} of {claims.owner[name]} stands for no model"
        for name in sorted(no_model & claims.meaning.keys())
    )
    if claims.faults:
        raise GpuTableError(Fault("", fault) for fault in claims.faults)
    return GpuTable(
        MappingProxyType(known),
        MappingProxyType(claims.meaning),
        MappingProxyType(label_names),
        no_model,
        MappingProxyType({name: tuple(as_) for name, as_ in claims.written.items()}),
        _scoped(lists.boards, owners, claims.faults),
    )


def _owners(models: Mapping[str, GpuModel], faults: list[str]) -> dict[str, Models]:
    """Return what each model and family stands for; add to `faults`."""
    members: dict[str, set[str]] = {}
    for model in models.values():
        for family in model.families:
            members.setdefault(family, set()).add(model.name)
    owners = {name: frozenset({name}) for name in models}
    for family, found in members.items():
        if owners.setdefault(family, frozenset(found)) != found:
            faults.append(f"name {family!r} is that of a model and of a family")
    return owners


def _scoped(
    meanings: Mapping[str, str], owners: Mapping[str, Models], faults: list[str]
) -> Mapping[str, Models]:
    """Return what names mean under one label; add to `faults`."""
    claims = _Claims(faults)
    for name, owner in meanings.items():
        claims.add(name, owner, owners.get(owner))
    return MappingProxyType(claims.meaning)


class _Claims:
    """Owners of names; collects a fault for each name that two claim."""

    def __init__(self, faults: list[str] | None = None) -> None:
        self.faults: list[str] = [] if faults is None else faults
        self.meaning: dict[str, Models] = {}
        self.owner: dict[str, str] = {}
        # normal form -> each way in which it is written, in order
        self.written: dict[str, dict[str, None]] = {}

    def add(self, name: str, owner: str, models: Models | None) -> None:
        """Note that `name` means `models`; `owner` is told in a fault."""
        normal = normal_name(name)
        if models is None:
            fault = f"name {name!r} is for {owner!r}, which is no model and no family"
            self.faults.append(fault)
        elif not normal:
            self.faults.append(f"name {name!r} of {owner} has no letter or digit")
        elif self.meaning.setdefault(normal, models) != models:
            first = self.owner[normal]
            self.faults.append(f"name {name!r} is shared by {first} and {owner}")
        else:
            self.owner.setdefault(normal, owner)
            self.written.setdefault(normal, {})[name] = None


_FILE = "data/gpu_models.toml"


@lru_cache(maxsize=1)
def _read_data() -> tuple[tuple[GpuModel, ...], NameLists]:
    """Return the models and names of the package's file."""
    data = tomllib.loads(files("scoring").joinpath(_FILE).read_text("utf-8"))
    geometries = {
        name: _profiles(names, data["shapes"])
        for name, names in data["geometries"].items()
    }
    models = tuple(
        GpuModel(
            name=row["model"],
            memory=row["memory"] * GIB,
            families=tuple(row.get("families", ())),
            vendor=row.get("vendor", "nvidia"),
            links=row["links"],
            mig=geometries[row["mig"]] if "mig" in row else (),
            names=tuple(row.get("names", ())),
            is_unified=row.get("unified", False),
        )
        for row in data["models"]
    )
    return models, NameLists(
        data["families"], data["labels"], tuple(data["no_model"]), data["boards"]
    )


def _profiles(
    names: Sequence[str], shapes: Mapping[str, Mapping[str, Any]]
) -> tuple[MigProfile, ...]:
    """Return a geometry: the rows of the one shape with as many profiles."""
    shape = next(s for s in shapes.values() if len(s["compute"]) == len(names))
    return tuple(
        MigProfile(name, compute, memory, at_most, tuple(starts))
        for name, compute, memory, at_most, starts in zip(
            names,
            shape["compute"],
            shape["memory"],
            shape["at_most"],
            shape["starts"],
            strict=True,
        )
    )


@lru_cache(maxsize=1)
def default_table() -> GpuTable:
    """Return the package's table."""
    return build_table(*_read_data())


def extended_table(
    models: Iterable[GpuModel], aliases: Mapping[str, Sequence[str]]
) -> GpuTable:
    """Return the package's table with more models, and more names of models.

    Raises `GpuTableError` with every fault.
    """
    own_models, lists = _read_data()
    more = {
        owner: (*lists.aliases.get(owner, ()), *aliases.get(owner, ()))
        for owner in dict.fromkeys(chain(lists.aliases, aliases))
    }
    return build_table(
        (*own_models, *models),
        replace(lists, aliases=MappingProxyType(more)),
    )
