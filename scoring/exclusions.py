"""What a pod keeps others from where it runs: host ports, and pods that it repels."""

from dataclasses import dataclass
from typing import Final

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared, and listened on by others


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the host that a pod takes."""

    number: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS

    def conflicts_with(self, other: "HostPort") -> bool:
        """Whether no node has room for both."""
        return (self.number, self.protocol) == (other.number, other.protocol) and (
            self.address == other.address
            or ANY_ADDRESS in {self.address, other.address}
        )


@dataclass(frozen=True, slots=True)
class LabelCondition:
    """One requirement on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepelledPods:
    """Pods that a pod wants away: a term of its required anti-affinity.

    Attributes
    ----------
    topology_key : str
        Label of nodes; they are kept from all that have the same value of it.
    namespaces : tuple of str
        Theirs, by name.
    namespace_conditions : tuple of LabelCondition or None
        On the labels of further namespaces; None for no further one.
    conditions : tuple of LabelCondition or None
        On their own labels; None for no pod.
    """

    topology_key: str
    namespaces: tuple[str, ...]
    namespace_conditions: tuple[LabelCondition, ...] | None
    conditions: tuple[LabelCondition, ...] | None


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What a pod keeps others from, where it runs.

    Attributes
    ----------
    is_whole : bool
        Whether all of it could be read.
    """

    ports: tuple[HostPort, ...] = ()
    repels: tuple[RepelledPods, ...] = ()
    is_whole: bool = True


NO_EXCLUSIONS: Final = Exclusions()
