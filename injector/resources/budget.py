"""Amounts of each resource for each GPU container of one pod."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from injector.resources.containers import NOTHING, ContainerAmounts
from injector.resources.limit_ranger import PAGE, FilledIn, lower
from injector.rules.rules import ResourceRule
from scoring.quantity import (
    format_quantity,
    scale_of,
    shorten,
    split_by_gpus,
    whole_total,
)
from scoring.resources import BYTE_RESOURCES

_MAX_NAMED: Final = 4

_MAX_REMEMBERED: Final = 16  # containers


class OverBudgetError(ValueError):
    """A budget of which nothing is left for a GPU container."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of a resource for one container.

    Attributes
    ----------
    value : Fraction
        In cores, bytes or pieces.
    text : str
        The same as a quantity.
    """

    value: Fraction
    text: str


@dataclass(frozen=True, slots=True)
class GpuWork:
    """The containers of one pod, seen from its one GPU resource.

    Attributes
    ----------
    gpu_containers : tuple of ContainerAmounts
        Those with at least one GPU.
    gpus : tuple of int
        How many each of them has.
    others : tuple of ContainerAmounts
        What runs beside them: other containers, restartable init containers.
    what : str
        What the budget is for, where `gpus` are not counts of `gpu_resource`.
    """

    gpu_resource: str
    gpu_containers: tuple[ContainerAmounts, ...]
    gpus: tuple[int, ...]
    others: tuple[ContainerAmounts, ...]
    what: str = ""

    def amounts(
        self, rule: ResourceRule, filled: Sequence[FilledIn] = ()
    ) -> tuple[tuple[Amount, ...], list[Fraction]]:
        """Return what each GPU container gets, and what is left of `filled`.

        Parameters
        ----------
        filled : sequence of FilledIn
            What LimitRanger filled in of this resource in `others`.

        Raises
        ------
        OverBudgetError
            Where a container would get nothing of a resource that all containers
            share: a limit of 0 means no limit to the kubelet, and with less than a
            page of memory none can start.
        """
        if not rule.is_standard:
            return self._share(rule, ()), []
        places = {item.container.place for item in filled}
        written = [item for item in self.others if item.place not in places]
        asked = [item.requested(rule.name) for item in written]
        pool = _total(rule, sum(self.gpus)) - sum(asked, NOTHING)
        lowered = lower(filled, pool) if pool > 0 else []
        amounts = self._share(rule, (*asked, *lowered))
        least = PAGE - 1 if rule.name in BYTE_RESOURCES else 0
        empty = [
            item.name
            for item, amount in zip(self.gpu_containers, amounts, strict=True)
            if amount.value <= least
        ]
        if empty:
            names = [*written, *(item.container for item in filled)]
            # Nothing was lowered where users' own values have used all of it up.
            asking = [
                (item.name, amount)
                for item, amount in zip(names, [*asked, *lowered], strict=False)
                if amount
            ]
            raise OverBudgetError(self._over_budget(rule, asking, empty))
        return amounts, lowered

    def _share(
        self, rule: ResourceRule, asked: tuple[Fraction, ...]
    ) -> tuple[Amount, ...]:
        count = len(self.gpus) + len(asked)
        share = _remembered if count <= _MAX_REMEMBERED else _shares
        return share(rule, self.gpus, asked)

    def _over_budget(
        self,
        rule: ResourceRule,
        asking: Sequence[tuple[str, Fraction]],
        empty: Sequence[str],
    ) -> str:
        """Return the numbers of a budget that does not suffice.

        Parameters
        ----------
        asking : sequence of (str, Fraction)
            Other containers, and what comes off for each.
        empty : sequence of str
            Containers that would get nothing.
        """

        def text_of(amount: Fraction) -> str:
            return format_quantity(amount, is_binary=rule.is_binary)

        asked = sum((amount for _, amount in asking), NOTHING)
        total = _total(rule, sum(self.gpus))
        left = total - asked
        what = self.what or f"{sum(self.gpus)} {self.gpu_resource}"
        budget = f"the budget of {what} is {text_of(total)}"
        named = ", ".join(
            f"{shorten(name)} {text_of(amount)}" for name, amount in asking[:_MAX_NAMED]
        )
        more = ", ..." if len(asking) > _MAX_NAMED else ""
        others = (
            f"others ask {text_of(asked)} ({named}{more})"
            if asking
            else "others ask none"
        )
        who = ", ".join(map(shorten, empty))
        short = f"short by {text_of(-left)}" if left < 0 else f"{text_of(left)} left"
        return f"{rule.name} {short} for container {who}: {others}, {budget}"


def _total(rule: ResourceRule, gpus: int) -> Fraction:
    """Return what so many GPUs are worth, in cores, bytes or pieces."""
    return Fraction(whole_total(rule.name, rule.per_gpu, gpus), scale_of(rule.name))


def _shares(
    rule: ResourceRule, gpus: tuple[int, ...], asked: tuple[Fraction, ...]
) -> tuple[Amount, ...]:
    """Return what each container gets where each of the others asks so much of it."""
    scale = scale_of(rule.name)
    if rule.is_standard:
        pool = (_total(rule, sum(gpus)) - sum(asked, NOTHING)) * scale
        parts = split_by_gpus(max(int(pool // 1), 0), gpus)
    else:
        parts = [whole_total(rule.name, rule.per_gpu, count) for count in gpus]
    values = [Fraction(part, scale) for part in parts]
    return tuple(
        Amount(value, format_quantity(value, is_binary=rule.is_binary))
        for value in values
    )


# PERF: pods of one template get the same; `bench/injector/test_reviews.py`.
_remembered: Final = lru_cache(maxsize=1024)(_shares)
