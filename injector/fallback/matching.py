"""How like a pod that has appeared is to what was held for one of its name.

Pods of one controller, or of one ``generateName``, need not be alike: those of a
DaemonSet each want a node of their own. Whose hold ends then makes a difference.
"""

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

from injector.fallback.simulation import Claim
from scoring.protocols import Constraints, RecentPod, SelectorTerm

# Pairs of terms. Of more, only terms that are all the same are told to be kept: a pod
# may have thousands, and other reviews wait.
MAX_COMPARED: Final = 4096

# Of claims that are equal here, each is as good as another for a pod that appears.
Kind: TypeAlias = tuple[Hashable, ...]


def kind_of(claim: Claim) -> Kind:
    """Return all of `claim` that `likeness` looks at."""
    constraints = claim.constraints
    selector = tuple(sorted(constraints.node_selector.items()))
    return claim.request, selector, constraints.affinity_terms


def likeness(arrival: RecentPod, claim: Claim) -> tuple[bool, bool, int]:
    """Return how well a pod matches a claim; the greater, the better.

    Returns
    -------
    tuple of (bool, bool, int)
        Whether the amounts are those claimed, whether the node selector is, and how
        many requirements of affinity are; -1 where one of them is not there. Others
        may have come on top: our own steps and later webhooks add to them.
    """
    now, then = arrival.constraints, claim.constraints
    return (
        set(claim.request).issubset(arrival.request),
        now.node_selector == then.node_selector,
        _count_kept(now, then),
    )


def _count_kept(now: Constraints, then: Constraints) -> int:
    """Return how many requirements `then` had, -1 if `now` does not keep them."""
    if then.affinity_terms is None:
        return 0
    terms = then.affinity_terms
    if now.affinity_terms != terms and not _all_keep(now.affinity_terms, terms):
        return -1
    return sum(len(term.expressions or ()) + len(term.fields or ()) for term in terms)


def _all_keep(now: Sequence[SelectorTerm] | None, then: Sequence[SelectorTerm]) -> bool:
    """Say whether each term has all requirements that an earlier one had."""
    if now is None or len(now) * len(then) > MAX_COMPARED:
        return False
    return all(any(_keeps(term, earlier) for earlier in then) for term in now)


def _keeps(now: SelectorTerm, then: SelectorTerm) -> bool:
    """Say whether a term has all requirements that another had."""
    return set(then.expressions or ()).issubset(now.expressions or ()) and set(
        then.fields or ()
    ).issubset(now.fields or ())
