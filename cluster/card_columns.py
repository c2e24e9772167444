"""What cards nodes have, and how many pods use them: a snapshot in the making."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from cluster.arrays import put
from scoring.cards import NodeCards
from scoring.snapshot import CardColumns, Int64Array


@dataclass(slots=True)
class CardTable:
    """Arrays in the making; shapes as in `CardColumns`.

    Attributes
    ----------
    code_of : dict
        kind of cards -> its code, in the order of the codes
    """

    code_of: dict[NodeCards, int]
    codes: Int64Array
    tenants: Int64Array
    exclusive: Int64Array

    @classmethod
    def fresh(cls, nodes: int) -> Self:
        """Return columns of nodes of which nothing is known."""
        return cls({}, *(np.zeros(nodes, dtype=np.int64) for _ in range(3)))

    @classmethod
    def upon(cls, last: CardColumns) -> Self:
        """Return the columns of a snapshot; `write` copies what it changes."""
        return cls(
            {kind: code for code, kind in enumerate(last.kinds)},
            last.codes,
            last.tenants,
            last.exclusive,
        )

    def write(self, column: int, cards: NodeCards) -> None:
        """Write what a node has."""
        code = self.code_of.setdefault(cards, len(self.code_of))
        self.codes = put(self.codes, column, code)

    def write_tenants(self, column: int, tenants: tuple[int, int]) -> None:
        """Write how many GPU pods a node has, and how many of them are exclusive."""
        self.tenants = put(self.tenants, column, tenants[0])
        self.exclusive = put(self.exclusive, column, tenants[1])

    def publish(self) -> CardColumns:
        """Return the columns, read-only from now on."""
        for array in (self.codes, self.tenants, self.exclusive):
            array.setflags(write=False)
        kinds = tuple(self.code_of)
        return CardColumns(self.codes, kinds, self.tenants, self.exclusive)
