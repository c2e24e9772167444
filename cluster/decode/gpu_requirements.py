"""`DemandReader`: a pod's annotations to what it wants of the cards."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from scoring.gpu.models import GpuTable
from scoring.gpu.node_gpus import CardReader, CardRules
from scoring.gpu.requirements import (
    NO_DEMAND,
    UNREADABLE,
    Demand,
    DemandAnnotations,
    DemandError,
)

# Pods of one template say the same; a cluster has far fewer templates than pods.
_MAX_KNOWN: Final = 4096

# Characters of all values together: a pod may say more, but it is not remembered.
_MAX_KEPT_LENGTH: Final = 1024


class KeptDemand(NamedTuple):
    """What is kept of a pod's annotations.

    Attributes
    ----------
    demand : Demand
    rule_key : str
        The rule key, where the models that are known decide what it means; empty for
        none, and beside a list of types.
    """

    demand: Demand
    rule_key: str


_NOTHING: Final = KeptDemand(NO_DEMAND, "")

_UNREADABLE: Final = KeptDemand(UNREADABLE, "")


class DemandReader:
    """Reads demands; any thread may call it.

    Parameters
    ----------
    annotations : DemandAnnotations, optional
    cards : CardReader, optional
        Knows which rule keys name a model or family.
    """

    def __init__(
        self,
        annotations: DemandAnnotations | None = None,
        cards: CardReader | None = None,
    ) -> None:
        self.annotations = annotations or DemandAnnotations()
        self._cards = cards or CardReader()
        self._names = self.annotations.names
        # values of the annotations -> what they say, by the table beside it
        self._known: tuple[GpuTable, dict[tuple[str | None, ...], KeptDemand]]
        self._known = (self._cards.table, {})

    def use(self, rules: CardRules) -> None:
        """Know models and families by other rules from now on."""
        self._cards.use(rules)

    def read(self, annotations: Mapping[str, str] | None) -> Demand:
        """Return what a pod with these annotations wants.

        Raises `DemandError` with every fault.
        """
        return self._read(annotations).demand

    def _read(self, annotations: Mapping[str, str] | None) -> KeptDemand:
        if not annotations:
            return _NOTHING
        key = tuple(map(annotations.get, self._names))
        if not any(value is not None for value in key):
            return _NOTHING
        table, known = self._known
        if table is not self._cards.table:  # whoever else has the cards changed it
            known = {}
            self._known = (self._cards.table, known)
        kept = known.get(key)
        if kept is None:
            own = self.annotations.parse(annotations)
            rule_key = "" if own.types else key[-1] or ""
            kept = KeptDemand(self.reread(own, rule_key), rule_key)
            if sum(len(value or "") for value in key) > _MAX_KEPT_LENGTH:
                return kept
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[key] = kept
        return kept

    def reread(self, demand: Demand, rule_key: str) -> Demand:
        """Return a demand that was read when other models may have been known.

        Parameters
        ----------
        demand : Demand
        rule_key : str
            As `KeptDemand` has it.
        """
        if not rule_key:
            return demand
        own = replace(demand, types=(), preferred=())
        return self.annotations.with_rule_key(own, rule_key, self._cards.knows)

    @property
    def table(self) -> GpuTable:
        """The alias table in use."""
        return self._cards.table

    def unknown_types(self, annotations: Mapping[str, str] | None) -> tuple[str, ...]:
        """Return the types, accepted or excluded, that are no known model or family.

        Raises `DemandError` with every fault.
        """
        demand = self.read(annotations)
        types = (*demand.types, *demand.excluded)
        return tuple(name for name in types if not self._cards.knows(name))

    def unknown_rule_key(self, annotations: Mapping[str, str] | None) -> str:
        """Return the rule key if it names no model or family, else nothing."""
        key = (annotations or {}).get(self.annotations.rule_key, "")
        return "" if self._cards.knows(key) else key

    def read_kept(self, annotations: Mapping[str, str] | None) -> KeptDemand:
        """Return what to keep of a pod that exists, whatever its annotations say.

        One that cannot be read is `UNREADABLE` as a whole: to keep the rest would make
        up a demand that nobody has. The verbs refuse such a pod, and say why.
        """
        try:
            return self._read(annotations)
        except DemandError:
            return _UNREADABLE
