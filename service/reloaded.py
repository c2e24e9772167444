"""What of a changed configuration file a running process takes, and what it cannot."""

from collections.abc import Iterator
from typing import Final

from injector.chains import find_chain_faults
from service.settings import Settings

# Sections of the settings that a reload puts to use.
RELOADED: Final = ("gpu_types", "scoring", "fallback")


def merge_settings(old: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """Return what is in use from now on, and the keys that wait for a restart.

    Chains are taken only if the process counts all their members, since it goes on
    counting by the prefixes that it was started with. Names of annotations stay: the
    pods that are there were read, and marked, by the old ones.
    """
    taken = {key: getattr(fresh, key) for key in RELOADED}
    kept = list(_changed_sections(old, fresh))
    if find_chain_faults(fresh.fallback.chains, scope=old.scope()):
        taken["fallback"] = old.fallback
        kept.append("fallback")
    elif fresh.fallback.annotations != old.fallback.annotations:
        annotations = {"annotations": old.fallback.annotations}
        taken["fallback"] = fresh.fallback.model_copy(update=annotations)
        kept.append("fallback.annotations")
    return old.model_copy(update=taken), sorted(kept)


def _changed_sections(old: Settings, fresh: Settings) -> Iterator[str]:
    """Yield the keys of changed sections that a reload does not take."""
    for key, field in Settings.model_fields.items():
        if key not in RELOADED and getattr(old, key) != getattr(fresh, key):
            yield field.alias or key
