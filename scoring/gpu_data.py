"""The alias table that comes with the package."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from types import MappingProxyType
from typing import Any

from scoring.gpu_models import (
    GIB,
    GpuModel,
    GpuTable,
    MigProfile,
    NameLists,
    build_table,
)

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
        )
        for row in data["models"]
    )
    return models, NameLists(data["families"], data["labels"], tuple(data["no_model"]))


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
        NameLists(MappingProxyType(more), lists.label_names, lists.no_model),
    )
