"""The classic score in plain Python, written from its rule, to know who must win."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the rule looks at."""

    name: str
    total: int
    used: int = 0
    has_nvlink: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Weights and bounds, as the settings name them.

    The asked GPU type takes no part: every node that passes the filter has the same.
    """

    utilization: int = 40
    type_match: int = 30
    topology: int = 30
    low: float = 0.6
    high: float = 0.8
    max_score: int = 10


CLASSIC: Final = Rule()


def priorities(
    nodes: Sequence[NodeState],
    *,
    amount: int,
    is_type_asked: bool = False,
    rule: Rule = CLASSIC,
) -> Mapping[str, int]:
    """Return what each node is given on the wire; all of them pass the filter."""
    totals = {
        node.name: _total(node, amount, is_type_asked=is_type_asked, rule=rule)
        for node in nodes
    }
    low, high = min(totals.values()), max(totals.values())
    if low == high:
        return dict.fromkeys(totals, rule.max_score)
    percents = {n: (total - low) * 100 // (high - low) for n, total in totals.items()}
    return {
        name: math.floor(percent * rule.max_score / 100 + 0.5)
        for name, percent in percents.items()
    }


def winner(
    nodes: Sequence[NodeState],
    *,
    amount: int,
    is_type_asked: bool = False,
    rule: Rule = CLASSIC,
    lead: int = 2,
) -> str:
    """Return the best node; it must lead by so many steps that nothing else decides."""
    scores = priorities(nodes, amount=amount, is_type_asked=is_type_asked, rule=rule)
    ranked = sorted(scores, key=lambda name: -scores[name])
    assert len(ranked) == 1 or scores[ranked[0]] - scores[ranked[1]] >= lead, scores
    return ranked[0]


def _total(node: NodeState, amount: int, *, is_type_asked: bool, rule: Rule) -> int:
    used = min(node.used / node.total, 1.0)
    if used < rule.low:
        utilization = used * 100 / rule.low
    elif used <= rule.high:
        utilization = 100.0
    else:
        utilization = (1.0 - used) * 100 / round(1.0 - rule.high, 12)
    type_match = 100 if is_type_asked else 50
    topology = 100 if amount <= 1 or node.has_nvlink else 50
    return (
        50
        + math.trunc(math.trunc(utilization) * (rule.utilization / 100))
        + math.trunc(type_match * (rule.type_match / 100))
        + math.trunc(topology * (rule.topology / 100))
    )
