"""Annotations of the settings that must not be one and the same."""

from collections.abc import Iterator
from typing import Any, Final

_TRIGGER: Final = "injection.triggerAnnotation"
_GPU_TYPE: Final = "demandAnnotations.gpuType"
# Those that are written come first.
_PATHS: Final = (
    "fallback.annotations.record",
    "fallback.annotations.mark",
    "extender.wakeUpAnnotation",
    "fallback.annotations.optOut",
    "fallback.annotations.sharing",
    _TRIGGER,
    _GPU_TYPE,
    "demandAnnotations.minGpuMemory",
    "demandAnnotations.exclusive",
    "demandAnnotations.linked",
)
# A rule's key may be the name of a model.
_MAY_BE_ONE: Final = frozenset({_TRIGGER, _GPU_TYPE})


def find_name_clashes(tree: Any, defaults: Any) -> Iterator[str]:
    """Yield a fault for each annotation that has the name of another one.

    Parameters
    ----------
    tree : Any
        A configuration file as parsed, sound or not.
    defaults : Any
        The same with all defaults.
    """
    first: dict[str, str] = {}  # name -> path
    for path in _PATHS:
        name = _value(tree, path)
        if name is None:
            name = _value(defaults, path)
        if not isinstance(name, str):
            continue
        other = first.setdefault(name, path)
        if other != path and {path, other} != _MAY_BE_ONE:
            yield (
                f"{path}: wanted a name of its own, got {name!r}, which is also {other}"
            )


def _value(tree: Any, path: str) -> Any:
    """Return what stands at `path`, None if nothing does."""
    for step in path.split("."):
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree
