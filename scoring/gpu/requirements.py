"""GPU requirements of a pod, beside their number, read from its annotations."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from scoring.faults import Fault, FaultsError
from scoring.gpu.models import GpuTable, normal_name
from scoring.quantity import QuantityError, parse_quantity, shorten

Link: TypeAlias = Literal["", "preferred", "required"]


@dataclass(frozen=True, slots=True)
class GpuRequirements:
    """GPU requirements of a pod.

    Attributes
    ----------
    types : tuple of str
        Accepted types, the most wanted first; names of models or families. Empty
        where any type will do.
    excluded : tuple of str
        Types that are never accepted.
    preferred : tuple of str
        Types that score better and refuse nothing.
    min_memory : int
        Bytes that each GPU, slice or share must have; 0 asks for nothing.
    is_sharing_allowed : bool
        Whether a share or a slice of a GPU may stand for a GPU.
    is_exclusive : bool
        Whether the pod wants no other GPU pod on its node.
    linked : str
        Whether several GPUs must, or should, be linked; empty asks for nothing.
    is_readable : bool
        False where an annotation of the pod cannot be read: the verbs then refuse to
        judge it, and no node is known to suit.
    """

    types: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    min_memory: int = 0
    is_sharing_allowed: bool = False
    is_exclusive: bool = False
    linked: Link = ""
    is_readable: bool = True

    @property
    def is_of_gpus(self) -> bool:
        """Whether it narrows down which nodes' GPUs will do."""
        return self.wants_whole_gpus or bool(
            self.types or self.excluded or self.min_memory or not self.is_readable
        )

    @property
    def names_gpus(self) -> bool:
        """Whether it says anything of the GPUs, a preference included."""
        return self.is_of_gpus or bool(self.preferred)

    @property
    def wants_whole_gpus(self) -> bool:
        """Whether a share or a slice of a GPU will not do for a GPU."""
        return not self.is_sharing_allowed and bool(
            self.types
            or self.excluded
            or self.min_memory
            or self.is_exclusive
            or self.linked == "required"
        )


NO_GPU_REQUIREMENTS: Final = GpuRequirements()

UNREADABLE: Final = GpuRequirements(is_readable=False)

MAX_TYPES: Final = 64

# Characters of one: twice what a label holds, for those that are dropped from it.
MAX_NAME: Final = 128

# Less is a number whose unit was left out.
MIN_MEMORY: Final = 2**20

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+()/ -]*", re.ASCII)

# Characters that labels do not hold are dropped where names are compared. Within a word
# that would make another name of it: A100 of A10+0.
_DROPPED: Final = re.compile(r"[A-Za-z0-9._][+()/]+[A-Za-z0-9._]", re.ASCII)

_MARKS: Final = re.compile(r"\((?:R|TM)\)", re.ASCII)

_LINKS: Final[Mapping[str, Link]] = {"required": "required", "preferred": "preferred"}


class GpuRequirementsError(FaultsError):
    """Annotations that cannot be read; the path of a fault is the annotation's name."""


@dataclass(frozen=True, slots=True)
class GpuAnnotations:
    """Annotations of a pod that state its GPU requirements.

    Attributes
    ----------
    gpu_type, min_memory, sharing, exclusive, linked : str
        Names of annotations.
    rule_key : str
        Annotation whose value is the key of an injection rule, and may be the name of
        a model, too; empty to take no notice of it.
    is_rule_key_filter : bool
        Whether a rule key that is the name of a model refuses nodes of other models.
    """

    gpu_type: str
    min_memory: str
    sharing: str
    exclusive: str
    linked: str
    rule_key: str
    is_rule_key_filter: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All annotations that are read."""
        own = (self.gpu_type, self.min_memory, self.sharing)
        return (*own, self.exclusive, self.linked, self.rule_key)

    def parse(self, annotations: Mapping[str, str]) -> GpuRequirements:
        """Return what a pod with these annotations wants, its rule key apart.

        Raises
        ------
        GpuRequirementsError
            With every fault.
        """
        faults: list[Fault] = []
        gpu_requirements = NO_GPU_REQUIREMENTS
        for name, take in (
            (self.gpu_type, _take_types),
            (self.min_memory, _take_memory),
            (self.sharing, _take_sharing),
            (self.exclusive, _take_exclusive),
            (self.linked, _take_linked),
        ):
            if name in annotations:
                try:
                    gpu_requirements = take(gpu_requirements, annotations[name])
                except ValueError as error:
                    message = f"{error}, got {shorten(annotations[name])}"
                    faults.append(Fault(name, message))
        if faults:
            raise GpuRequirementsError(faults)
        return gpu_requirements

    def with_rule_key(
        self, own: GpuRequirements, key: str, is_model: Callable[[str], bool]
    ) -> GpuRequirements:
        """Return what a pod wants by its own words and by its rule key.

        Parameters
        ----------
        own : GpuRequirements
            What `parse` returns.
        key : str
            Value of the annotation `rule_key`; empty for none.
        is_model : callable
            Says whether a rule key names a model or family.
        """
        if own.types or not 0 < len(key) <= MAX_NAME or not is_model(key):
            return own
        if self.is_rule_key_filter:
            return replace(own, types=(key.strip(),))
        return replace(own, preferred=(key.strip(),))


def is_askable(name: str) -> bool:
    """Whether an annotation can ask for a model or family by this name.

    >>> is_askable("A100-80GB"), is_askable("a,b"), is_askable("!L4")
    (True, False, False)
    >>> is_askable("Intel(R) Arc (Pro)"), is_askable("A10+0"), is_askable("L4/0S")
    (True, False, False)
    """
    if len(name) > MAX_NAME or not (_NAME.fullmatch(name) and normal_name(name)):
        return False
    return not _DROPPED.search(_MARKS.sub(" ", name))


def _take_types(gpu_requirements: GpuRequirements, text: str) -> GpuRequirements:
    """Take names in their order, each once; those after a ``!`` are excluded."""
    accepted: dict[str, str] = {}  # normal form -> as written
    excluded: dict[str, str] = {}
    entries = text.split(",")
    if len(entries) > MAX_TYPES:
        raise ValueError(f"wanted at most {MAX_TYPES} types")
    for entry in entries:
        name = entry.strip()
        names = accepted
        if name.startswith("!"):
            name, names = name[1:].strip(), excluded
        if not is_askable(name):
            raise ValueError(
                "wanted names of GPU models or families, such as 'H100, A100-80GB, !L4'"
            )
        names.setdefault(normal_name(name), name)
    both = accepted.keys() & excluded.keys()
    if both:
        raise ValueError(f"wanted {min(both)!r} accepted or excluded, not both")
    return replace(
        gpu_requirements,
        types=tuple(accepted.values()),
        excluded=tuple(excluded.values()),
    )


def _take_memory(gpu_requirements: GpuRequirements, text: str) -> GpuRequirements:
    try:
        amount = parse_quantity(text.strip())
    except QuantityError as error:
        raise ValueError("wanted an amount of memory, such as '40Gi'") from error
    if amount < MIN_MEMORY:
        raise ValueError("wanted an amount of memory from 1Mi, such as '40Gi'")
    return replace(gpu_requirements, min_memory=amount)


def _take_sharing(gpu_requirements: GpuRequirements, text: str) -> GpuRequirements:
    if text != "allowed":
        raise ValueError("wanted 'allowed'")
    return replace(gpu_requirements, is_sharing_allowed=True)


def _take_exclusive(gpu_requirements: GpuRequirements, text: str) -> GpuRequirements:
    if text not in {"true", "false"}:
        raise ValueError("wanted 'true' or 'false'")
    return replace(gpu_requirements, is_exclusive=text == "true")


def _take_linked(gpu_requirements: GpuRequirements, text: str) -> GpuRequirements:
    if text not in _LINKS:
        raise ValueError("wanted 'required' or 'preferred'")
    return replace(gpu_requirements, linked=_LINKS[text])


MAX_NEAR: Final = 3

_SEPARATORS: Final = re.compile(r"[\s/+]+")


def separated(table: GpuTable, name: str) -> tuple[str, ...]:
    """Return the known names that `name` consists of; none unless all are known.

    >>> from scoring.gpu.models import default_table
    >>> separated(default_table(), "H100 A100")
    ('H100', 'A100')
    """
    words = tuple(filter(None, _SEPARATORS.split(name)))
    return words if len(words) > 1 and all(map(table.find, words)) else ()


def near_names(table: GpuTable, name: str) -> tuple[str, ...]:
    """Return models and families whose names are spelled much alike, best first.

    >>> from scoring.gpu.models import default_table
    >>> near_names(default_table(), "A100-80")
    ('A100-80GB', 'H100-80GB', 'A800-80GB')
    """
    if len(name) > MAX_NAME:
        return ()
    models = table.models.values()
    names = sorted({own for item in models for own in (item.name, *item.families)})
    written = {normal_name(own): own for own in names}
    found = difflib.get_close_matches(normal_name(name), list(written), MAX_NEAR)
    return tuple(written[normal] for normal in found)
