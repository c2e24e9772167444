"""Amounts of each resource for each GPU container of one pod."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from injector.resources.containers import NOTHING, ContainerAmounts
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

# A container that has less than a page of memory cannot start.
_LEAST_BYTES: Final = 4095


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
    """

    gpu_resource: str
    gpu_containers: tuple[ContainerAmounts, ...]
    gpus: tuple[int, ...]
    others: tuple[ContainerAmounts, ...]

    def amounts(self, rule: ResourceRule) -> tuple[Amount, ...]:
        """Return what each GPU container gets.

        Raises `OverBudgetError` where a container would get nothing of a resource
        that all containers share: a limit of 0 means no limit to the kubelet, and
        with less than a page of memory none can start.
        """
        asked: tuple[Fraction, ...] = ()
        if rule.is_standard:
            asked = tuple(item.requested(rule.name) for item in self.others)
        count = len(self.gpus) + len(asked)
        share = _remembered if count <= _MAX_REMEMBERED else _shares
        amounts = share(rule, self.gpus, asked)
        least = _LEAST_BYTES if rule.name in BYTE_RESOURCES else 0
        if rule.is_standard and not all(item.value > least for item in amounts):
            total = sum(asked, NOTHING)
            raise OverBudgetError(self._over_budget(rule, total, amounts))
        return amounts

    def _over_budget(
        self,
        rule: ResourceRule,
        asked: Fraction,
        amounts: Sequence[Amount],
    ) -> str:
        """Return the numbers of a budget that does not suffice."""
        least = _LEAST_BYTES if rule.name in BYTE_RESOURCES else 0
        total = _total(rule, sum(self.gpus))
        left = total - asked

        def text_of(amount: Fraction) -> str:
            return format_quantity(amount, is_binary=rule.is_binary)

        budget = (
            f"the budget of {sum(self.gpus)} {self.gpu_resource} is {text_of(total)}"
        )
        asking = [item for item in self.others if item.requested(rule.name)]
        named = ", ".join(
            f"{shorten(item.name)} {text_of(item.requested(rule.name))}"
            for item in asking[:_MAX_NAMED]
        )
        more = ", ..." if len(asking) > _MAX_NAMED else ""
        others = (
            f"others ask {text_of(asked)} ({named}{more})"
            if asking
            else "others ask none"
        )
        empty = ", ".join(
            shorten(item.name)
            for item, amount in zip(self.gpu_containers, amounts, strict=True)
            if amount.value <= least
        )
        short = f"short by {text_of(-left)}" if left < 0 else f"{text_of(left)} left"
        return f"{rule.name} {short} for container {empty}: {others}, {budget}"


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
