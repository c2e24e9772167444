"""`Reflector`: lists one kind, watches it, and starts again when that breaks."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from cluster.api.protocol import Api, ApiError, ApiStream
from cluster.ledger.changes import Change
from cluster.watch.backoff import Backoff, Pace
from cluster.watch.kinds import Listing, WatchedKind

logger = logging.getLogger(__name__)

# The server ends a watch then. Spread out, so that not all end together.
WATCH_SECONDS: Final = (300, 600)

# A stream that ends sooner and brought nothing is a failure, though a polite one.
SHORT_WATCH_SECONDS: Final = 1.0

# Between a stream that ended well and the next, so that no server makes us spin.
PAUSE_SECONDS: Final = 0.05

# A list on demand is expensive, and cannot help more often than this.
RESTART_INTERVAL_SECONDS: Final = 30.0

# Where lists on demand do not help.
LONGEST_RESTART_INTERVAL_SECONDS: Final = 600.0

# How often to look whether an optional kind has appeared.
ABSENT_SECONDS: Final = 300.0

# An API server that has just started forbids all, for a moment, and lacks groups. So
# many refusals take some five seconds.
DOUBTED_REFUSALS: Final = 5

# The API server lets what remains of a list expire by then.
LIST_SECONDS: Final = 300.0

# Bookmarks come every minute. A stream that brings only bytes for so long is dead, too.
SILENT_SECONDS: Final = 180.0

# A watch that brought nothing at all for so long may go on like that: of a kind that
# nothing changes, an API server has no bookmark newer than the list.
UNHEARD_SECONDS: Final = 75.0

# Several times what etcd takes of one object.
MAX_LINE_BYTES: Final = 16 * 2**20

STOP_SECONDS: Final = 5.0

# What the log says of an error after which a list or watch is tried again.
INTERRUPTED: Final = "watch interrupted"

# Answers after which the version that we hold is of no use.
_RELIST_REASONS: Final = frozenset({"expired", "error_event", "undecodable"})

_KEEP_VERSION: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
)


def newest(known: str | None, seen: str) -> str:
    """Return the later of two resource versions; `seen` where they do not compare.

    Notes
    -----
    Within one watch the API server may say an older one last, after a bookmark. That
    versions are decimal numbers that grow is part of the API (KEP 5504).

    >>> newest("10", "9"), newest("9", "10"), newest(None, "9"), newest("10", "x")
    ('10', '10', '9', 'x')
    """
    if known is None or not (known.isdecimal() and seen.isdecimal()):
        return seen
    return max(known, seen, key=int)


class WatchObserver(Protocol):
    """Counts what happens to the watches; called by reflectors' threads."""

    def listed(self, kind: str, count: int) -> None:
        """Note that a complete list of so many objects was handed on."""
        ...

    def events(self, kind: str, event_type: str, count: int) -> None:
        """Note events of one type."""
        ...

    def decode_fault(self, kind: str) -> None:
        """Note an object of which at least a part did not decode."""
        ...

    def watch_restarted(self, kind: str, reason: str) -> None:
        """Note that a list or watch ended, and why; it is taken up again."""
        ...


class Reflector:
    """Keeps the ledger in step with one kind of object.

    Its own thread lists and watches; all but `run` is for any other thread.

    Parameters
    ----------
    submit : callable
        Hands changes to the ledger's thread.
    """

    def __init__(
        self,
        kind: WatchedKind[Any, Any],
        api: Api,
        submit: Callable[..., None],
        observer: WatchObserver,
        pace: Pace,
    ) -> None:
        self._kind = kind
        self._api = api
        self._submit = submit
        self._observer = observer
        self._pace = pace
        # When the server last sent what keeps the kind up to date: a complete list, an
        # event or a bookmark that could be read. Bytes alone do not.
        self._contacted_at = pace.monotonic()
        self._backoff = Backoff(pace)
        # Where the watch goes on; None before a list is complete.
        self._version: str | None = None
        self._is_absent = False
        self._refusals = 0
        self._is_failing = False
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        # Both under the lock: they say what another thread may interrupt.
        self._stream: ApiStream | None = None
        self._restart_reason = ""
        self._listed_at = 0.0
        self._restarted_at = float("-inf")
        self._restart_interval = RESTART_INTERVAL_SECONDS
        self._thread = threading.Thread(
            target=self.run, name=f"watch-{kind.name}", daemon=True
        )

    @property
    def contact_age(self) -> float:
        """Seconds since the last contact, or since the start where there was none."""
        return self._pace.monotonic() - self._contacted_at

    def start(self) -> None:
        """Start the reflector's thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the thread to end; it need not have done so on return."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()

    def join(self, within_seconds: float = STOP_SECONDS) -> None:
        """Wait for the thread's end; a request without an answer yet is left behind."""
        self._thread.join(within_seconds)

    def restart(self, reason: str) -> bool:
        """End the watch and list again, because something does not add up.

        Returns
        -------
        bool
            False if nothing is done: a list is under way or half a minute old at most,
            or lists on demand have not helped: each waits twice as long as the last
            one, up to ten minutes.
        """
        with self._lock:
            now = self._pace.monotonic()
            if now - self._restarted_at > 2 * LONGEST_RESTART_INTERVAL_SECONDS:
                self._restart_interval = RESTART_INTERVAL_SECONDS
            age = now - self._listed_at
            if self._version is None or age < self._restart_interval:
                return False
            self._restart_interval = min(
                2 * self._restart_interval, LONGEST_RESTART_INTERVAL_SECONDS
            )
            self._restarted_at = now
            self._restart_reason = reason
            if self._stream is not None:
                self._stream.interrupt()
        return True

    def run(self) -> None:
        """List and watch until asked to stop."""
        while not self._stopping.is_set():
            self._take_restart()
            try:
                if self._version is None:
                    self._list()
                self._watch(self._version or "")
                delay = PAUSE_SECONDS
            except ApiError as error:
                delay = self._after(error)
            except Exception:
                # A fault of our own must not end the thread; a list heals most.
                logger.exception("watch failed", extra=self._fields())
                self._observer.watch_restarted(self._kind.name, "fault")
                self._version = None
                delay = self._backoff.delay("fault")
            self._pace.wait(self._stopping, delay)

    def _take_restart(self) -> None:
        """Forget the version if a restart was asked for."""
        with self._lock:
            reason, self._restart_reason = self._restart_reason, ""
        if reason:
            self._version = None
            self._observer.watch_restarted(self._kind.name, reason)
            logger.warning("watch restarted", extra=self._fields(reason=reason))

    def _list(self) -> None:
        """Read all pages and hand them on as one change that replaces."""
        listing: Listing[Any] = Listing()
        query = {"limit": str(self._pace.page_size)}
        deadline = self._pace.monotonic() + LIST_SECONDS
        while True:
            with self._opened(query) as stream:
                data = self._read_page(stream, deadline)
            listing.faults.clear()
            self._kind.read_page(data, listing)
            self._note_faults(listing.faults)
            if not listing.continue_token:
                break
            query["continue"] = listing.continue_token
        if not listing.resource_version:  # no API server leaves it out
            raise ApiError("list: wanted a version, got none", reason="undecodable")
        self._replace(listing)
        self._contacted_at = self._pace.monotonic()
        self._is_absent = False
        self._refusals = 0

    def _read_page(self, stream: ApiStream, deadline: float) -> bytes:
        """Return the bytes of one page; raise `ApiError` past the list's deadline."""
        chunks = []
        for chunk in stream.chunks():
            chunks.append(chunk)
            if self._pace.monotonic() > deadline:
                raise ApiError("the list does not end", reason="silent")
        return b"".join(chunks)

    def _replace(self, listing: Listing[Any]) -> None:
        """Hand a complete list on."""
        name = self._kind.name
        self._submit(
            self._kind.listed(tuple(listing.records), frozenset(listing.partial))
        )
        with self._lock:
            self._version = listing.resource_version
            self._listed_at = self._pace.monotonic()
        self._observer.listed(name, len(listing.records))
        logger.info("objects listed", extra=self._fields(count=len(listing.records)))

    def _watch(self, version: str) -> None:
        """Follow the watch from `version` until the server ends it."""
        started = self._pace.monotonic()
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(self._pace.rng.randint(*WATCH_SECONDS)),
        }
        rest = b""
        heard_at: float | None = None
        try:
            with self._opened(query) as stream:
                self._recovered()
                for chunk in stream.chunks():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if self._take(lines):
                        heard_at = self._contacted_at = self._pace.monotonic()
                    if self._is_interrupted:
                        return
                    self._check_sense(started if heard_at is None else heard_at, rest)
        except ApiError as error:
            lived = self._pace.monotonic() - started
            is_unheard = heard_at is None and lived >= UNHEARD_SECONDS
            if is_unheard and error.reason == "silent":
                self._version = None  # a list says how things are
            raise
        lived = self._pace.monotonic() - started
        if rest or (heard_at is None and lived < SHORT_WATCH_SECONDS):
            raise ApiError("the stream ended early", reason="closed")
        self._observer.watch_restarted(self._kind.name, "ended")

    def _check_sense(self, heard_at: float, rest: bytes) -> None:
        """Raise `ApiError` if a stream has brought bytes and no event for long."""
        if self._pace.monotonic() - heard_at > SILENT_SECONDS:
            raise ApiError("nothing that can be read", reason="silent")
        if len(rest) > MAX_LINE_BYTES:
            raise ApiError("watch line: too long", reason="undecodable")

    def _take(self, lines: list[bytes]) -> bool:
        """Hand the events of some lines on, those before an error, too.

        Returns
        -------
        bool
            Whether one of them says something: of an object, or how far we are.
        """
        has_news = False
        changes: list[Change] = []
        counts: dict[str, int] = {}
        try:
            for line in lines:
                if not line:
                    continue
                event = self._kind.read_event(line)
                counts[event.type] = counts.get(event.type, 0) + 1
                if event.change is not None:
                    changes.append(event.change)
                if event.fault:
                    self._note_faults([event.fault])
                if event.resource_version:
                    self._version = newest(self._version, event.resource_version)
                is_bookmark = event.type == "BOOKMARK" and event.resource_version
                has_news |= event.change is not None or bool(is_bookmark)
        finally:
            if changes:
                self._submit(*changes)
            for event_type, count in counts.items():
                self._observer.events(self._kind.name, event_type, count)
        return has_news

    def _note_faults(self, faults: Sequence[str]) -> None:
        """Count and log objects that did not decode."""
        for _ in faults:
            self._observer.decode_fault(self._kind.name)
        if faults:
            fields = self._fields(count=len(faults), first=faults[0])
            logger.warning("objects did not decode", extra=fields)

    @contextlib.contextmanager
    def _opened(self, query: Mapping[str, str]) -> Iterator[ApiStream]:
        """Open a stream that `request_stop` and `restart` can interrupt."""
        stream = self._api.get(self._kind.path, query)
        try:
            with self._lock:
                self._stream = stream
            if self._is_interrupted:
                stream.interrupt()
            yield stream
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _after(self, error: ApiError) -> float:
        """Decide what to do after a failure, and return how long to wait first."""
        if self._is_interrupted:
            return 0.0
        if self._kind.is_optional and error.status in (
            HTTPStatus.FORBIDDEN,
            HTTPStatus.NOT_FOUND,
        ):
            self._refusals += 1
            if self._refusals > DOUBTED_REFUSALS:
                return self._do_without(error)
        is_refused = (
            HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        ) and error.status not in _KEEP_VERSION
        if is_refused or error.reason in _RELIST_REASONS:
            self._version = None
        delay = self._backoff.delay(error.reason, error.retry_after_seconds)
        self._observer.watch_restarted(self._kind.name, error.reason)
        level = (
            logging.WARNING if self._backoff.is_first(error.reason) else logging.DEBUG
        )
        fields = self._fields(
            reason=error.reason, error=str(error), delay_seconds=round(delay, 3)
        )
        logger.log(level, INTERRUPTED, extra=fields)
        self._is_failing = True
        return delay

    def _do_without(self, error: ApiError) -> float:
        """Take an optional kind for empty, and look again much later."""
        if not self._is_absent:
            self._submit(self._kind.listed((), frozenset()))
            fields = self._fields(status=error.status, error=str(error))
            logger.info("objects not available", extra=fields)
        self._is_absent = True
        self._version = None
        return ABSENT_SECONDS

    @property
    def _is_interrupted(self) -> bool:
        """Whether another thread has asked to stop or to list again."""
        return self._stopping.is_set() or bool(self._restart_reason)

    def _recovered(self) -> None:
        """Note that the server answers again."""
        if self._is_failing:
            logger.info("watch resumed", extra=self._fields())
        self._is_failing = False

    def _fields(self, **more: object) -> dict[str, object]:
        """Return the fields of a log line."""
        return {"fields": {"kind": self._kind.name, **more}}
