"""A Secret and a registration in memory, as two replicas see them, and a clock."""

from collections.abc import Callable

from cluster.api.protocol import ApiError
from service.certificates.rotation import Contents, Published, RotationOptions
from service.certificates.rotator import Rotator
from service.certificates.store import ConflictError, Registration, Stored

# The year 2030: certificates have no earlier trouble with it.
START = 1_900_000_000.0
NAMES = frozenset({"gpu-extender.gpu-extender.svc", "127.0.0.1"})


# Times in seconds, short enough for a history.
OPTIONS = RotationOptions(
    names=NAMES,
    leaf_lifetime_seconds=300,
    leaf_rotation_seconds=100,
    ca_lifetime_seconds=3000,
    ca_rotation_seconds=1000,
    switch_delay_seconds=30,
    drop_delay_seconds=200,
)


class CertificateObjects:
    """Both objects with their versions; time stands until it is told.

    Attributes
    ----------
    now : float
    contents : Contents or None
        What the Secret holds; None for a faulty one.
    bundles : list of (float, tuple of bytes)
        Every `caBundle` so far and since when; the last is the present one.
    failing : list of str
        Names of calls, each of which fails once.
    results : list of bool
        How each check of a replica went.
    """

    def __init__(self, *, is_registered: bool = True) -> None:
        self.now = START
        self.contents: Contents | None = None
        self.has_secret = False
        self.secret_version = 0
        self.registration_version = 0
        self.is_registered = is_registered
        self.bundles: list[tuple[float, tuple[bytes, ...]]] = [(START, ())]
        self.writes = 0
        self.failing: list[str] = []
        self.results: list[bool] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now

    @property
    def bundle(self) -> tuple[bytes, ...]:
        """The present `caBundle`."""
        return self.bundles[-1][1]

    def _note(self, name: str, *, is_ok: bool) -> None:
        assert name == "certificate"
        self.results.append(is_ok)

    def set_bundle(self, bundle: tuple[bytes, ...]) -> None:
        """Have another `caBundle`, whoever wrote it."""
        self.bundles.append((self.now, bundle))
        self.registration_version += 1

    def set_secret(self, contents: Contents | None, *, exists: bool = True) -> None:
        """Have another Secret; None is a faulty one, or none at all."""
        self.contents = contents
        self.has_secret = exists
        self.secret_version += 1

    def replica(
        self,
        options: RotationOptions = OPTIONS,
        before_call: Callable[[], None] = lambda: None,
    ) -> Rotator:
        """Return a replica that works on these objects."""
        store = ReplicaStore(self, before_call)
        return Rotator(store, options, 10.0, self._note, clock=self.clock)


class ReplicaStore:
    """What one replica reads and writes; `before_call` is where others come in."""

    def __init__(
        self, objects: CertificateObjects, before_call: Callable[[], None]
    ) -> None:
        self._objects = objects
        self._before_call = before_call

    def read_registration(self) -> Registration | None:
        """Return the registration, None if there is none."""
        self._call("read_registration")
        objects = self._objects
        if not objects.is_registered:
            return None
        published = Published((objects.bundle,))
        return Registration(published, ("w",), str(objects.registration_version))

    def read_secret(self) -> Stored:
        """Return the Secret."""
        self._call("read_secret")
        objects = self._objects
        tree = {"version": objects.secret_version} if objects.has_secret else None
        return Stored(objects.contents if objects.has_secret else None, tree)

    def write(self, contents: Contents, stored: Stored) -> None:
        """Create or replace the Secret; raise `ConflictError` if it has changed."""
        self._call("write")
        objects = self._objects
        if (stored.tree is not None) != objects.has_secret:
            raise ConflictError("made or deleted")
        if stored.tree is not None and stored.tree["version"] != objects.secret_version:
            raise ConflictError("changed")
        objects.set_secret(contents)
        objects.writes += 1

    def publish(self, bundle: tuple[bytes, ...], registration: Registration) -> None:
        """Set the bundle; raise `ConflictError` if the registration has changed."""
        self._call("publish")
        objects = self._objects
        if registration.version != str(objects.registration_version):
            raise ConflictError("changed")
        objects.set_bundle(bundle)

    def _call(self, name: str) -> None:
        self._before_call()
        if name in self._objects.failing:
            self._objects.failing.remove(name)
            raise ApiError("asked to fail", reason="http_500", status=500)
