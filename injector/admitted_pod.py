"""`AdmittedPod`: the pod of one review, which every step reads and may change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cluster.decode.objects import Pod
from injector.review import Review, decode_pod
from scoring.pod_request import effective_request
from scoring.quantity import QuantityError, exact_amount
from scoring.resources import Request, any_resource

# Of the API object of a pod that a kubelet runs whatever the API server thinks of it.
# What else kubelets write on static pods, anybody may write on any pod.
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"

# LimitRanger says in it what it has filled in.
LIMIT_RANGER_ANNOTATION: Final = "kubernetes.io/limit-ranger"

# The webhook says in it what it has filled in.
FILLED_ANNOTATION: Final = "gpu-extender.io/filled"


@dataclass(frozen=True, slots=True)
class FallenResource:
    """A GPU resource of one container that fell back to another one.

    Attributes
    ----------
    container : str
        Name of the container; empty for each that asks `target`.
    count : int
        How many of `source` it asked; 0 if that is not known any more.
    """

    container: str
    source: str
    target: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Names of the pod of one admission request, and of the request.

    Attributes
    ----------
    request_uid : str
        UID of the request, not of the pod, which has none yet.
    namespace : str
        That of the request; the pod's own may still be empty.
    name, generate_name : str
        As far as known at admission: a pod made by a controller has no name yet.
    owner_uid : str
        UID of the pod's controller; empty for a pod without one.
    is_dry_run : bool
        Whether nothing may be kept of this request.
    """

    request_uid: str
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    is_dry_run: bool

    @property
    def label(self) -> str:
        """Namespace and name; ``w-*`` for a pod whose name will be generated."""
        return f"{self.namespace}/{self.name or f'{self.generate_name}*'}"


def identify(review: Review, decoded: Pod) -> PodIdentity:
    """Return the names of the pod of `review`, as far as they are known."""
    metadata = decoded.metadata
    return PodIdentity(
        request_uid=review.uid,
        namespace=review.namespace or metadata.namespace,
        name=review.name or metadata.name,
        generate_name=metadata.generate_name,
        owner_uid=decoded.owner_uid,
        is_dry_run=review.is_dry_run,
    )


def is_static(decoded: Pod) -> bool:
    """Whether the kubelet runs this pod whatever the API server thinks of it."""
    return MIRROR_ANNOTATION in (decoded.metadata.annotations or {})


class AdmittedPod:
    """One pod on its way through the steps; one thread has it.

    It is decoded once, and once more after a step has taken it to change it.

    Parameters
    ----------
    tree : dict
        A copy of our own, as `draft_of` makes it.
    decoded : Pod, optional
        `tree` decoded, where that has been done already.
    """

    __slots__ = ("_decoded", "_request", "_tree", "identity")

    def __init__(
        self, tree: dict[str, Any], identity: PodIdentity, decoded: Pod | None = None
    ) -> None:
        self._tree = tree
        self.identity = identity
        self._decoded = decoded
        self._request: Request | None = None

    @property
    def tree(self) -> Mapping[str, Any]:
        """The pod as JSON has it, to be read."""
        return self._tree

    @property
    def decoded(self) -> Pod:
        """The pod as far as it is read; raises `ReviewError` if it is none."""
        if self._decoded is None:
            self._decoded = decode_pod(self._tree)
        return self._decoded

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the pod."""
        return self.decoded.metadata.annotations or {}

    @property
    def request(self) -> Request:
        """The effective request of all resources; unreadable amounts are left out."""
        if self._request is None:
            self._request = effective_request(
                self.decoded.spec, any_resource, lambda _path, _error: None
            )
        return self._request

    def asked_resources(self) -> Iterator[str]:
        """Yield the resources of which any container asks more than nothing.

        A quantity that cannot be read counts as nothing: the API server refuses it.
        """
        spec = self.decoded.spec
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            if container.resources is None:
                continue
            for amounts in (container.resources.limits, container.resources.requests):
                for resource, quantity in (amounts or {}).items():
                    if _is_positive(quantity):
                        yield resource

    def edit(self) -> dict[str, Any]:
        """Return the tree to be changed in place, before anybody reads the pod again.

        What was decoded is forgotten.
        """
        self._decoded = self._request = None
        return self._tree


def _is_positive(quantity: Any) -> bool:
    """Whether a quantity is above 0."""
    try:
        return exact_amount(quantity) > 0
    except QuantityError:
        return False
