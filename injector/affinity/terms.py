"""Requirements on labels, added to the terms of a pod's required node affinity.

Terms are alternatives: a requirement goes into each of them, and alternative ones take
a copy of the term for each. Nothing is changed but added to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from injector.patch import member_of
from scoring.gpu.affinity import LabelRule, LabelTerm

_Term: TypeAlias = dict[str, Any]

# More would make a pod that is mostly affinity.
MAX_TERMS: Final = 64

MAX_VALUES: Final = 4096

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

_TERMS: Final = "nodeSelectorTerms"

_EXPRESSIONS: Final = "matchExpressions"

_FIELDS: Final = "matchFields"


@dataclass(frozen=True, slots=True, eq=False)
class NodeSelectorTerms:
    """Requirements on the labels of a pod's node, ready to be written.

    Attributes
    ----------
    alternatives : tuple of tuple of LabelRule
        One of which must hold; without any, nothing is demanded.
    terms : tuple of dict
        The same as the terms of a pod that has none. Pods share them: nobody changes
        a term.
    """

    alternatives: tuple[LabelTerm, ...]
    terms: tuple[_Term, ...]


def build_node_selector_terms(alternatives: Sequence[LabelTerm]) -> NodeSelectorTerms:
    """Return `alternatives` ready to be written."""
    terms = tuple(_extended({}, item) for item in alternatives)
    return NodeSelectorTerms(tuple(alternatives), terms)


def add_node_selector_terms(
    spec: dict[str, Any], gpu_requirements: NodeSelectorTerms
) -> bool:
    """Require in `spec`, a pod's own, what `gpu_requirements` says, in place.

    Returns
    -------
    bool
        False if there would be too many terms; `spec` is then as it was.

    Notes
    -----
    A term without requirements matches no node, nor does a list without terms: they
    stay as they are, since anything added would open them. A node selector counts as a
    requirement of every term.
    """
    selector = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (spec.get("nodeSelector") or {}).items()
    ]
    required = _required(spec)
    if required is None:
        if selector and any(
            _implies(selector, item) for item in gpu_requirements.alternatives
        ):
            return True
        present: list[_Term] = []
        terms = list(gpu_requirements.terms)
    else:
        present = required.get(_TERMS) or []
        terms = _narrowed(present, selector, gpu_requirements.alternatives)
    if terms == present:
        return True
    if len(terms) > MAX_TERMS or _count_values(terms) > MAX_VALUES:
        return False
    affinity = member_of(member_of(spec, "affinity"), "nodeAffinity")
    member_of(affinity, _REQUIRED)[_TERMS] = terms
    return True


def _count_values(terms: Iterable[_Term]) -> int:
    """Return how many values the requirements on labels have altogether."""
    return sum(
        len(item.get("values") or ())
        for term in terms
        for item in term.get(_EXPRESSIONS) or ()
    )


def _narrowed(
    terms: Sequence[_Term],
    selector: Sequence[Mapping[str, Any]],
    alternatives: Sequence[LabelTerm],
) -> list[_Term]:
    """Return the terms with the alternatives; those that stay keep their places."""
    if not alternatives:
        return list(terms)
    is_open = [
        bool(term.get(_EXPRESSIONS) or term.get(_FIELDS))
        and not any(
            _implies((*selector, *(term.get(_EXPRESSIONS) or ())), item)
            for item in alternatives
        )
        for term in terms
    ]
    first, *others = alternatives
    pairs = list(zip(terms, is_open, strict=True))
    return [
        *(_extended(term, first) if opened else term for term, opened in pairs),
        *(_extended(t, item) for item in others for t, opened in pairs if opened),
    ]


def _extended(term: _Term, alternative: LabelTerm) -> _Term:
    """Return a term with more requirements."""
    present: list[Mapping[str, Any]] = list(term.get(_EXPRESSIONS) or ())
    added = [_written(rule) for rule in alternative if not _holds_by(present, rule)]
    return {**term, _EXPRESSIONS: [*present, *added]}


def _written(rule: LabelRule) -> dict[str, Any]:
    """Return a requirement as Kubernetes has it."""
    written: dict[str, Any] = {"key": rule.key, "operator": rule.operator}
    if rule.values:
        written["values"] = list(rule.values)
    return written


def _implies(expressions: Iterable[Mapping[str, Any]], alternative: LabelTerm) -> bool:
    """Whether whatever meets `expressions` meets the alternative, too."""
    present = list(expressions)
    return all(_holds_by(present, rule) for rule in alternative)


def _holds_by(expressions: Sequence[Mapping[str, Any]], rule: LabelRule) -> bool:
    """Whether one of `expressions` is as narrow as `rule`, or narrower."""
    return any(
        _is_narrower(item.get("operator"), frozenset(item.get("values") or ()), rule)
        for item in expressions
        if item.get("key") == rule.key
    )


def _is_narrower(operator: Any, values: frozenset[str], rule: LabelRule) -> bool:
    """Whether a requirement on the label of `rule` implies it."""
    match rule.operator:
        case "In":
            return operator == "In" and values <= frozenset(rule.values)
        case "NotIn":
            return (
                (operator == "NotIn" and values >= frozenset(rule.values))
                or (operator == "In" and values.isdisjoint(rule.values))
                or operator == "DoesNotExist"
            )
        case "Exists":
            return operator in {"Exists", "In", "Gt", "Lt"}
    return bool(operator == rule.operator)


def _required(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the required node affinity, None if there is none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: dict[str, Any] | None = affinity.get(_REQUIRED)
    return required
