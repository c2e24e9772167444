"""`GpuRequirementsReader`: GPU requirements from a pod's annotations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from scoring.bounded import BoundedDict
from scoring.gpu.models import GpuTable
from scoring.gpu.node_gpus import GpuLabelReader, GpuLabelRules
from scoring.gpu.requirements import (
    NO_GPU_REQUIREMENTS,
    UNREADABLE,
    GpuAnnotations,
    GpuRequirements,
    GpuRequirementsError,
)

# Pods of one template say the same; a cluster has far fewer templates than pods.
_MAX_KNOWN: Final = 4096

# Characters of all values together: a pod may say more, but it is not remembered.
_MAX_KEPT_LENGTH: Final = 1024


class KeptRequirements(NamedTuple):
    """GPU requirements of a pod that exists, and its rule key.

    Attributes
    ----------
    rule_key : str
        The rule key, where the known models decide what it means; empty for
        none, and beside a list of types.
    """

    gpu_requirements: GpuRequirements
    rule_key: str


_NOTHING: Final = KeptRequirements(NO_GPU_REQUIREMENTS, "")

_UNREADABLE: Final = KeptRequirements(UNREADABLE, "")


class GpuRequirementsReader:
    """Reads GPU requirements; any thread may call it.

    Parameters
    ----------
    gpus : GpuLabelReader, optional
        Knows which rule keys name a model or family.
    """

    def __init__(
        self,
        annotations: GpuAnnotations,
        gpus: GpuLabelReader | None = None,
    ) -> None:
        self.annotations = annotations
        self._gpus = gpus or GpuLabelReader()
        self._names = self.annotations.names
        # values of the annotations -> what they say, by the table beside it
        self._known: tuple[
            GpuTable, BoundedDict[tuple[str | None, ...], KeptRequirements]
        ]
        self._known = (self._gpus.table, BoundedDict(_MAX_KNOWN))

    def use(self, rules: GpuLabelRules) -> None:
        """Know models and families by other rules from now on."""
        self._gpus.use(rules)

    def read(self, annotations: Mapping[str, str] | None) -> GpuRequirements:
        """Return what a pod with these annotations wants.

        Raises `GpuRequirementsError` with every fault.
        """
        return self._read(annotations).gpu_requirements

    def _read(self, annotations: Mapping[str, str] | None) -> KeptRequirements:
        if not annotations:
            return _NOTHING
        key = tuple(map(annotations.get, self._names))
        if not any(value is not None for value in key):
            return _NOTHING
        table, known = self._known
        if table is not self._gpus.table:  # changed through another user of the GPUs
            known = BoundedDict(_MAX_KNOWN)
            self._known = (self._gpus.table, known)
        kept = known.get(key)
        if kept is None:
            own = self.annotations.parse(annotations)
            rule_key = "" if own.types else key[-1] or ""
            kept = KeptRequirements(self.reread(own, rule_key), rule_key)
            if sum(len(value or "") for value in key) > _MAX_KEPT_LENGTH:
                return kept
            known.keep(key, kept)
        return kept

    def reread(
        self, gpu_requirements: GpuRequirements, rule_key: str
    ) -> GpuRequirements:
        """Return requirements that were read when other models may have been known.

        Parameters
        ----------
        rule_key : str
            As `KeptRequirements` has it.
        """
        if not rule_key:
            return gpu_requirements
        own = replace(gpu_requirements, types=(), preferred=())
        return self.annotations.with_rule_key(own, rule_key, self._gpus.knows)

    @property
    def table(self) -> GpuTable:
        """The alias table in use."""
        return self._gpus.table

    def unknown_types(self, annotations: Mapping[str, str] | None) -> tuple[str, ...]:
        """Return the types, accepted or excluded, that are no known model or family.

        Raises `GpuRequirementsError` with every fault.
        """
        gpu_requirements = self.read(annotations)
        types = (*gpu_requirements.types, *gpu_requirements.excluded)
        return tuple(name for name in types if not self._gpus.knows(name))

    def unknown_rule_key(self, annotations: Mapping[str, str] | None) -> str:
        """Return the rule key if it names no model or family, else nothing."""
        key = (annotations or {}).get(self.annotations.rule_key, "")
        return "" if self._gpus.knows(key) else key

    def read_kept(self, annotations: Mapping[str, str] | None) -> KeptRequirements:
        """Return what to keep of a pod that exists, whatever its annotations say.

        One that cannot be read is `UNREADABLE` as a whole: to keep the rest would make
        up requirements that nobody has. The verbs refuse such a pod, and say why.
        """
        try:
            return self._read(annotations)
        except GpuRequirementsError:
            return _UNREADABLE
