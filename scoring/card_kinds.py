"""Nodes by what their labels say of their cards."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from scoring.card_reader import CardRules
from scoring.cards import NodeCards
from scoring.objects import NodeFacts


@dataclass(frozen=True, slots=True)
class LabelledCards:
    """Nodes of one kind: those of their labels that tell of the cards, and the cards.

    Attributes
    ----------
    labels : tuple of (str, str)
    cards : NodeCards
    """

    labels: tuple[tuple[str, str], ...]
    cards: NodeCards


@dataclass(frozen=True, slots=True)
class CardLabels:
    """Which labels of nodes tell of their cards."""

    rules: CardRules
    _keys: frozenset[str] = field(init=False)
    _prefixes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        labels = (*self.rules.type_labels, *self.rules.memory_labels)
        starred = tuple(key[:-1] for key in labels if key.endswith("*"))
        object.__setattr__(self, "_keys", frozenset(labels))
        object.__setattr__(self, "_prefixes", starred)

    def kind_of(self, node: NodeFacts) -> LabelledCards:
        """Return the kind of a node."""
        labels = tuple(
            item
            for item in sorted(node.labels.items())
            if item[0] in self._keys or item[0].startswith(self._prefixes)
        )
        return LabelledCards(labels, node.cards)


def values_of(kind: LabelledCards, label: str) -> Iterator[str]:
    """Yield what the nodes of a kind have under a label, which may end in a star."""
    if not label.endswith("*"):
        yield from (value for key, value in kind.labels if key == label)
        return
    prefix = label[:-1]
    for key, _ in kind.labels:
        if key.startswith(prefix):
            yield key.removeprefix(prefix)
