"""What the cards of a node may be by the one label that tells their model."""

from functools import lru_cache
from typing import Final

from scoring.card_reader import MIN_MEMORY_PERCENT, CardRules, without_marks
from scoring.cards import ANY_SIZE, NodeCards
from scoring.gpu_models import GpuTable, Models, normal_name

# Names of one table in all forms, each judged for every pod that asks for a type.
_MAX_KNOWN: Final = 8192


def card_readings(rules: CardRules, label: str, stated: str) -> tuple[NodeCards, ...]:
    """Return what the cards may be where `label` is the one that tells the model.

    All other labels are open. A name of several models stands for all of them, and for
    each part that a memory label can tell from the rest; memory and sharing are the
    best that they can be.
    """
    product, _, _ = without_marks(stated)
    scoped = rules.table.label_names.get(label, {})
    return _readings(rules, label if normal_name(product) in scoped else "", stated)


@lru_cache(maxsize=_MAX_KNOWN)
def _readings(rules: CardRules, label: str, stated: str) -> tuple[NodeCards, ...]:
    """Return the readings; `label` is empty where it changes no meaning."""
    product, profile, is_marked = without_marks(stated)
    replicas = 0 if is_marked else 1
    cards = NodeCards(is_shared=is_marked, replicas=replicas, profile=profile)
    if not product:
        return (cards,)
    models = rules.table.find(product, label)
    parts = {models}
    if not profile:  # the memory label is then that of a slice
        parts |= _alike_in_memory(models, rules.table)
    return tuple(
        rules.identify(cards, product, part, ANY_SIZE)
        for part in sorted(parts, key=sorted)
    )


def _alike_in_memory(models: Models, table: GpuTable) -> set[Models]:
    """Return the parts of `models` that one value of a memory label can mean."""
    size_of = {name: table.models[name].memory for name in models}
    parts = set()
    for least in size_of.values():
        for most in size_of.values():
            if least <= most and most * MIN_MEMORY_PERCENT // 100 <= least:
                sizes = range(least, most + 1)
                parts.add(frozenset(m for m in models if size_of[m] in sizes))
    return parts
