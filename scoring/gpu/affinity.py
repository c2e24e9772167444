"""GPU requirements of a pod as requirements on the labels of nodes.

kube-scheduler shows an extender a sample of the nodes; what stands in the pod itself it
checks on all of them, as do its preemption and the cluster autoscaler.

The rule
--------
The first type label that names a model decides what a node is (`GpuLabelRules`), and
nodes carry one or several of them. So accepted types become several **terms**, of which
one must hold: for each type label, that its value is one of those that are accepted
under it. A node that the filter takes has such a value in the label that decides. Where
a node is known that an earlier label tells to be something else, the terms of
the later labels leave that value of the earlier one out, which concerns no node that a
later label decides.

Where the filter tells a part of a GPU by a memory that is too small for the model, a
term leaves out the values that say so on known nodes.

Exclusions and memory become **one** list of values to be kept out, under each label:
those that are refused whatever else a node says, and that no known node carries which
is taken. Nodes without labels stay open to them.

Values are those that the table has for the accepted or excluded types, as the writer of
each label writes them, and those on known nodes. So no known node is kept out that the
filter takes, nor one that comes later, as long as it spells its model in one of these
ways, and its labels do not contradict each other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from scoring.gpu.models import normal_name
from scoring.gpu.node_gpus import GpuLabelRules, NodeGpus
from scoring.gpu.node_labels import (
    PRODUCT_LABEL,
    LabelledGpus,
    gpus_by_label,
    is_label_value,
    label_values,
    values_of,
)
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, GpuRequirements
from scoring.gpu.suitability import may_hold, may_suit
from scoring.resources import Request, is_whole_gpu

# Of one requirement. A longer list of accepted values gives way to "is there", without
# those that are known to be refused.
MAX_VALUES: Final = 128


@dataclass(frozen=True, slots=True)
class LabelRule:
    """One requirement on a label; ``In``, ``NotIn``, ``Exists`` or ``DoesNotExist``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


# Requirements that must all hold, as those of a node selector term.
LabelTerm: TypeAlias = tuple[LabelRule, ...]


class GpuCriteria(Protocol):
    """Criteria that GPUs must meet; both leave open what is not known of memory."""

    def may_take(self, gpus: NodeGpus) -> bool:
        """Whether `gpus` will do."""
        ...

    def may_hold(self, gpus: NodeGpus) -> bool:
        """Whether their memory will do, whatever else they are."""
        ...


@dataclass(frozen=True, slots=True)
class RequestedGpus:
    """Criteria of a pod: its GPU requirements and its request."""

    gpu_requirements: GpuRequirements
    request: Request

    def may_take(self, gpus: NodeGpus) -> bool:
        """Whether `gpus` will do."""
        return may_suit(gpus, self.gpu_requirements, self.request)

    def may_hold(self, gpus: NodeGpus) -> bool:
        """Whether their memory will do, whatever else they are."""
        return may_hold(gpus, self.gpu_requirements, self.request)


def required_terms(
    rules: GpuLabelRules, criteria: RequestedGpus, kinds: Sequence[LabelledGpus]
) -> tuple[LabelTerm, ...]:
    """Return what the labels of a node must be for a pod with GPU requirements.

    Parameters
    ----------
    kinds : sequence of LabelledGpus
        Of the known nodes.

    Returns
    -------
    tuple of LabelTerm
        Of which one must hold; empty where labels can say nothing.
    """
    gpu_requirements = criteria.gpu_requirements
    if not gpu_requirements.types:
        return _LabelJudge(
            rules, criteria, kinds, gpu_requirements, criteria.request
        ).kept_out()
    found = _LabelJudge(
        rules, criteria, kinds, gpu_requirements, criteria.request
    ).accepted()
    if found or not gpu_requirements.min_memory:
        return found
    # GPUs of none of the types are so large: of the type at least they shall be.
    of_type = RequestedGpus(replace(gpu_requirements, min_memory=0), criteria.request)
    return required_terms(rules, of_type, kinds)


def refusing_terms(
    rules: GpuLabelRules, criteria: GpuCriteria, kinds: Sequence[LabelledGpus]
) -> tuple[LabelTerm, ...]:
    """Return what keeps a pod off the known nodes whose GPUs will not do."""
    return _LabelJudge(rules, criteria, kinds).kept_out()


@dataclass(frozen=True, slots=True)
class _LabelJudge:
    """Judges values of labels by the criteria of one pod."""

    rules: GpuLabelRules
    criteria: GpuCriteria
    kinds: Sequence[LabelledGpus]
    gpu_requirements: GpuRequirements = NO_GPU_REQUIREMENTS
    request: Request = ()

    def accepted(self) -> tuple[LabelTerm, ...]:
        """Return one or more terms for each type label."""
        names = self._names_of(self.gpu_requirements.types)
        accepted = {
            label: {
                value
                for value in self._seen(label) | self._of_table(label, names)
                if self._may_be(label, value)
            }
            | self._decided(label)
            for label in self.rules.type_labels
        }
        too_small = {rule.key: set(rule.values) for rule in self._too_small()}
        of_type = self._memory_beside(accepted)
        found: list[LabelTerm] = []
        for index, (label, values) in enumerate(accepted.items()):
            if not values:
                continue
            others = (
                *self._told_otherwise(index, values),
                *self._of_parts(label, values, of_type, too_small),
            )
            if label.endswith("*"):
                keys = [f"{label[:-1]}{value}" for value in sorted(values)]
                found += [(LabelRule(key, "Exists"), *others) for key in keys]
            elif len(values) <= MAX_VALUES:
                found.append((_listed(label, "In", values), *others))
            else:
                refused = self._refused(label, self._seen(label))
                found.append((LabelRule(label, "Exists"), *refused, *others))
        return tuple(found)

    def kept_out(self) -> tuple[LabelTerm, ...]:
        """Return one term, that none of the refused values is there."""
        rules: list[LabelRule] = []
        names = self._names_of(self.gpu_requirements.excluded)
        for label in self.rules.type_labels:
            values = self._seen(label) | self._of_table(label, names)
            rules += self._refused(label, values - self._taken(label))
        rules += self._too_small()
        return (tuple(rules),) if rules else ()

    def _refused(self, label: str, values: set[str]) -> list[LabelRule]:
        """Return what keeps out those of `values` that are never taken."""
        refused = {value for value in values if not self._may_be(label, value)}
        return _none_of(label, refused - self._decided(label))

    def _told_otherwise(self, index: int, accepted: set[str]) -> Iterator[LabelRule]:
        """Yield what earlier labels say on nodes that would else pass by this one."""
        earlier: dict[str, set[str]] = {}
        for kind in self.kinds:
            values = set(values_of(kind, self.rules.type_labels[index]))
            label, stated = self.rules.stated_model(dict(kind.labels))
            if not label or values.isdisjoint(accepted):
                continue
            if label in self.rules.type_labels[:index]:
                earlier.setdefault(label, set()).add(stated)
        for label, values in earlier.items():
            yield from self._refused(label, values)

    def _too_small(self) -> Iterator[LabelRule]:
        """Yield which values of memory labels are too small whatever the model."""
        for label in self.rules.memory_labels:
            refused = {
                value
                for value in self._seen(label)
                if not self.criteria.may_hold(self.rules.read({label: value}))
            } - self._taken(label)
            if refused:
                yield _listed(label, "NotIn", refused)

    def _memory_beside(
        self, accepted: Mapping[str, set[str]]
    ) -> Mapping[str, set[str]]:
        """Return memory label -> values on known nodes of an accepted type.

        Those that a node to be taken carries are left out.
        """
        kinds = [
            kind
            for kind in self.kinds
            if any(
                not values.isdisjoint(values_of(kind, label))
                for label, values in accepted.items()
            )
        ]
        return {
            label: {value for kind in kinds for value in values_of(kind, label)}
            - self._taken(label)
            for label in self.rules.memory_labels
        }

    def _of_parts(
        self,
        label: str,
        accepted: set[str],
        of_type: Mapping[str, set[str]],
        too_small: Mapping[str, set[str]],
    ) -> Iterator[LabelRule]:
        """Yield what keeps out memory that is too small, or that of parts of GPUs.

        What is a part depends on the model: a value is one of a part if it suits none
        of those that are `accepted` under the type label.
        """
        for memory_label, values in of_type.items():
            refused = too_small.get(memory_label, set()).union(
                value
                for value in values
                if not any(
                    self._takes(label, stated, memory_label, value)
                    for stated in accepted
                )
            )
            if refused:
                yield _listed(memory_label, "NotIn", refused)

    def _takes(self, label: str, stated: str, memory_label: str, memory: str) -> bool:
        """Whether a node with these two labels may be taken."""
        if label.endswith("*"):
            label = f"{label[:-1]}{stated}"
        gpus = self.rules.read({label: stated, memory_label: memory})
        return self.criteria.may_take(gpus)

    def _may_be(self, label: str, stated: str) -> bool:
        """Whether a node may be taken whose model is told by this value."""
        return self.rules.names_model(stated) and any(
            map(self.criteria.may_take, gpus_by_label(self.rules, label, stated))
        )

    def _seen(self, label: str) -> set[str]:
        """Return the values of a label on known nodes that say anything."""
        found = {value for kind in self.kinds for value in values_of(kind, label)}
        if label in self.rules.memory_labels:
            return found
        return set(filter(self.rules.names_model, found))

    def _taken(self, label: str) -> set[str]:
        """Return the values of a label on known nodes that may be taken."""
        return {
            value
            for kind in self.kinds
            if self.criteria.may_take(kind.gpus)
            for value in values_of(kind, label)
        }

    def _decided(self, label: str) -> set[str]:
        """Return the values that tell the model of known nodes that may be taken."""
        told = (
            self.rules.stated_model(dict(kind.labels))
            for kind in self.kinds
            if self.criteria.may_take(kind.gpus)
        )
        return {stated for by, stated in told if by == label}

    def _names_of(self, types: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return each name that may mean one of `types`, and how it is written."""
        table = self.rules.table
        found: dict[str, tuple[str, ...]] = {
            normal_name(name): (name,) for name in types
        }
        meant = frozenset().union(*map(table.find, types))
        for names in (table.names, *table.label_names.values()):
            for name, models in names.items():
                if models & meant:
                    found[name] = table.spellings.get(name, (name,))
        return found

    def _of_table(self, label: str, names: dict[str, tuple[str, ...]]) -> set[str]:
        """Return the values of a type label that say one of `names`."""
        values = set()
        for name, spellings in names.items():
            models = self.rules.table.find(name, label)
            vendors = {self.rules.table.models[model].vendor for model in models}
            for spelling in spellings:
                for value in label_values(label, spelling, vendors):
                    values.add(value)
                    values.update(self._marked(label, value, models))
        return values

    def _marked(self, label: str, value: str, models: Iterable[str]) -> Iterator[str]:
        """Yield the forms for shared and sliced GPUs, if the pod takes them."""
        is_whole = any(is_whole_gpu(resource) for resource, _ in self.request)
        if label != PRODUCT_LABEL or (
            is_whole and self.gpu_requirements.wants_whole_gpus
        ):
            return
        profiles = {
            profile.name.replace("+", ".")
            for model in models
            for profile in self.rules.table.models[model].mig
            if is_whole
        }
        for base in (value, *(f"{value}-MIG-{profile}" for profile in profiles)):
            yield from filter(is_label_value, (base, f"{base}-SHARED"))


def _none_of(label: str, values: set[str]) -> list[LabelRule]:
    """Return the requirements that a node has none of `values`."""
    if label.endswith("*"):
        keys = [f"{label[:-1]}{value}" for value in sorted(values)]
        return [LabelRule(key, "DoesNotExist") for key in keys[:MAX_VALUES]]
    return [_listed(label, "NotIn", values)] if values else []


def _listed(label: str, operator: str, values: Iterable[str]) -> LabelRule:
    """Return a requirement with its values sorted, and no more than there may be."""
    return LabelRule(label, operator, tuple(sorted(values)[:MAX_VALUES]))
