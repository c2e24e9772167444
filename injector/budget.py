"""How much of each resource each GPU container of one pod gets."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from injector.containers import ContainerAmounts
from injector.quantities import format_quantity, split_by_gpus, whole_total
from injector.rules import ResourceRule
from scoring.resources import scale_of, shorten

_MAX_NAMED: Final = 4


class OverBudgetError(ValueError):
    """A budget of which nothing is left for a GPU container."""


@dataclass(frozen=True, slots=True)
class GpuWork:
    """The containers of one pod, seen from its one GPU resource.

    Attributes
    ----------
    gpu_containers : tuple of ContainerAmounts
        Those with at least one GPU.
    others : tuple of ContainerAmounts
        What runs beside them: other containers, restartable init containers.
    """

    gpu_resource: str
    gpu_containers: tuple[ContainerAmounts, ...]
    others: tuple[ContainerAmounts, ...]

    def gpus(self) -> list[int]:
        """Return the GPUs of each GPU container."""
        return [item.count(self.gpu_resource) for item in self.gpu_containers]

    def amounts(self, rule: ResourceRule) -> list[Fraction]:
        """Return what each GPU container gets, in cores, bytes or pieces.

        Raises `OverBudgetError` where a container would get nothing of a resource
        that all containers share: a limit of 0 means no limit to the kubelet.
        """
        if not rule.is_standard:
            return [
                Fraction(whole_total(rule.name, rule.per_gpu, count))
                for count in self.gpus()
            ]
        scale = scale_of(rule.name)
        gpus = self.gpus()
        total = whole_total(rule.name, rule.per_gpu, sum(gpus))
        asked = sum((item.requested(rule.name) for item in self.others), Fraction(0))
        pool = total - asked * scale
        shares = split_by_gpus(max(int(pool // 1), 0), gpus)
        if not all(shares):
            raise OverBudgetError(
                self._over_budget(rule, Fraction(total, scale), pool / scale, shares)
            )
        return [Fraction(share, scale) for share in shares]

    def _over_budget(
        self,
        rule: ResourceRule,
        total: Fraction,
        left: Fraction,
        shares: Sequence[int],
    ) -> str:
        """Return the numbers of a budget that does not suffice."""

        def said(amount: Fraction) -> str:
            return format_quantity(amount, is_binary=rule.is_binary)

        budget = (
            f"the budget of {sum(self.gpus())} {self.gpu_resource} is {said(total)}"
        )
        asking = [item for item in self.others if item.requested(rule.name)]
        named = ", ".join(
            f"{shorten(item.name)} {said(item.requested(rule.name))}"
            for item in asking[:_MAX_NAMED]
        )
        more = ", ..." if len(asking) > _MAX_NAMED else ""
        others = (
            f"others ask {said(total - left)} ({named}{more})"
            if asking
            else "others ask none"
        )
        empty = ", ".join(
            shorten(item.name)
            for item, share in zip(self.gpu_containers, shares, strict=True)
            if not share
        )
        short = f"short by {said(-left)}" if left < 0 else f"{said(left)} left"
        return f"{rule.name} {short} for container {empty}: {others}, {budget}"
