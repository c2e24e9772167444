"""`DemandReader`: a pod's annotations to what it wants of the cards."""

from collections.abc import Mapping
from typing import Final

from scoring.card_reader import CardReader, CardRules
from scoring.demand import NO_DEMAND, UNREADABLE, Demand
from scoring.demand_annotations import DemandAnnotations, DemandError

# Pods of one template say the same; a cluster has far fewer templates than pods.
_MAX_KNOWN: Final = 4096


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
        self._known: dict[tuple[str | None, ...], Demand] = {}

    def use(self, rules: CardRules) -> None:
        """Know models and families by other rules from now on."""
        self._cards.use(rules)
        self._known = {}

    def read(self, annotations: Mapping[str, str] | None) -> Demand:
        """Return what a pod with these annotations wants.

        Raises `DemandError` with every fault.
        """
        if not annotations:
            return NO_DEMAND
        key = tuple(map(annotations.get, self._names))
        if not any(value is not None for value in key):
            return NO_DEMAND
        demand = self._known.get(key)
        if demand is None:
            demand = self.annotations.parse(annotations, self._cards.knows)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = demand
        return demand

    def unknown_rule_key(self, annotations: Mapping[str, str] | None) -> str:
        """Return the rule key if it names no model or family, else nothing."""
        key = (annotations or {}).get(self.annotations.rule_key, "")
        return "" if self._cards.knows(key) else key

    def read_kept(self, annotations: Mapping[str, str] | None) -> Demand:
        """Return what to keep of a pod that exists, whatever its annotations say.

        One that cannot be read is `UNREADABLE` as a whole: to keep the rest would make
        up a demand that nobody has. The verbs refuse such a pod, and say why.
        """
        try:
            return self.read(annotations)
        except DemandError:
            return UNREADABLE
