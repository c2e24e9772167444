"""A warning for pods whose wish for a type of GPU has no effect, or stops them."""

from dataclasses import dataclass
from typing import Any

from cluster.demands import DemandReader
from injector.facts import PodFacts
from injector.review import read_pod
from injector.scheduling import asked
from scoring.demand_annotations import DemandError
from scoring.resources import ResourceScope, shorten


@dataclass(frozen=True, slots=True)
class DemandCheck:
    """Tells at once what would else be seen when the pod is to be scheduled.

    It never refuses: rule keys are free.

    Attributes
    ----------
    demands : DemandReader
    scope : ResourceScope
    """

    demands: DemandReader
    scope: ResourceScope

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        del facts
        view = read_pod(pod)
        annotations = view.metadata.annotations
        if not any(self.scope.is_managed(resource) for resource in asked(view)):
            return ()
        try:
            self.demands.read(annotations)
        except DemandError as error:
            return tuple(
                f"the pod will not be scheduled: annotation {name}: {fault}"
                for name, fault in error.faults
            )
        key = self.demands.unknown_rule_key(annotations)
        if not key:
            return ()
        name = self.demands.annotations.rule_key
        fault = "is no known GPU model: it chooses a rule, but no node"
        return (f"annotation {name}: {shorten(key)} {fault}",)
