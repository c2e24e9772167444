"""Bytes of lists and watch lines to changes of the ledger, for each watched kind."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from cluster.decode.faults import convert_with_faults, decode_object
from cluster.decode.limit_ranges import (
    LimitRange,
    LimitRangeRecord,
    limit_range_key,
    limit_range_record,
)
from cluster.decode.objects import (
    DeviceClass,
    Node,
    NodeRecord,
    ObjectMeta,
    Pod,
    PodRecord,
)
from cluster.decode.records import RecordBuilder
from cluster.ledger.changes import (
    Change,
    DeviceClassesListed,
    LimitRangesListed,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.watch.wire import (
    NO_JSON,
    Event,
    ListMeta,
    Page,
    RawPage,
    error_event,
    raw_event,
    undecodable,
)
from scoring.faults import Fault

NODES: Final = "nodes"

PODS: Final = "pods"

DEVICE_CLASSES: Final = "deviceclasses"

LIMIT_RANGES: Final = "limitranges"

_Object = TypeVar("_Object", Node, Pod, DeviceClass, LimitRange)

_Record = TypeVar("_Record", NodeRecord, PodRecord, DeviceClass, LimitRangeRecord)


_Kept = TypeVar("_Kept")


@dataclass(slots=True)
class Listing(Generic[_Record]):
    """A list in the making, page by page.

    Attributes
    ----------
    partial : set of str
        Keys of the objects of which only a part decoded, or nothing but the key.
    resource_version, continue_token : str
        Of the page read last.
    faults : list of str
        For each object that did not decode, what is wrong with it.
    """

    records: list[_Record] = field(default_factory=list)
    partial: set[str] = field(default_factory=set)
    resource_version: str = ""
    continue_token: str = ""
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch.

    Attributes
    ----------
    type : str
        As sent: ADDED, MODIFIED, DELETED or BOOKMARK.
    change : Change or None
        None for a bookmark, and for an object that cannot be told from others.
    resource_version : str
        Empty if it cannot be read.
    fault : str
        What is wrong with the object; empty if all of it decoded.
    """

    type: str
    change: Change | None
    resource_version: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class WatchedKind(Generic[_Object, _Record]):
    """A kind of object: its path, its decoding, the changes that it makes.

    Attributes
    ----------
    is_optional : bool
        Whether the API, or our rights, may lack it.
    key_of : callable
        What tells objects apart: a pod's UID, a name; empty if unreadable.
    listed, seen, gone : callable
        Make the change of a complete list, of an object, of a key.
    """

    name: str
    path: str
    is_optional: bool
    object_type: type[_Object]
    page_decoder: "msgspec.json.Decoder[Page[_Object]]"
    event_decoder: "msgspec.json.Decoder[Event[_Object]]"
    key_of: Callable[[_Object], str]
    record_of: Callable[[_Object], tuple[_Record, list[Fault]]]
    listed: Callable[[tuple[_Record, ...], frozenset[str]], Change]
    seen: Callable[[_Record, bool], Change]
    gone: Callable[[str], Change]

    def read_page(self, data: bytes, listing: Listing[_Record]) -> None:
        """Add one page to `listing`; raise `ApiError` if it is no list."""
        try:
            page = self.page_decoder.decode(data)
        except msgspec.ValidationError:
            self._read_faulty_page(data, listing)
            return
        except NO_JSON as error:
            raise undecodable("list", error) from error
        _note_page(listing, page.metadata)
        for item in page.items or ():
            self._add(item, [], listing)

    def _read_faulty_page(self, data: bytes, listing: Listing[_Record]) -> None:
        """Add a page object by object, and of each as much as decodes."""
        try:
            page = msgspec.json.decode(data, type=RawPage)
        except NO_JSON as error:
            raise undecodable("list", error) from error
        _note_page(listing, page.metadata)
        for raw in page.items or ():
            item, faults = self._read_object(raw)
            if item is not None:
                self._add(item, faults, listing)
                continue
            listing.faults.append(_text(faults))
            key = self.key_of(self._bare(raw))
            if key:  # a record kept before stays
                listing.partial.add(key)

    def _add(
        self, item: _Object, faults: list[Fault], listing: Listing[_Record]
    ) -> None:
        """Add one object to `listing`."""
        key = self.key_of(item)
        if not key:
            listing.faults.append(_text(faults))
            return
        record, more = self.record_of(item)
        listing.records.append(record)
        if faults or more:
            listing.partial.add(key)
            listing.faults.append(_text(faults + more))

    def read_event(self, line: bytes) -> WatchEvent:
        """Read one line; raise `ApiError` for an ERROR, or no event."""
        faults: list[Fault] = []
        item: _Object | None
        try:
            event = self.event_decoder.decode(line)
            event_type, item = event.type, event.object
        except msgspec.ValidationError:
            event_type, raw = raw_event(line)
            item, faults = self._read_object(raw)
            if item is None and event_type in ("ADDED", "MODIFIED", "DELETED"):
                return self._read_hopeless_event(event_type, raw, _text(faults))
        except NO_JSON as error:
            raise undecodable("watch line", error) from error
        if event_type == "ERROR":
            raise error_event(line)
        version = "" if item is None else item.metadata.resource_version
        if event_type == "BOOKMARK":
            return WatchEvent(event_type, None, version)
        key = "" if item is None else self.key_of(item)
        if item is None or not key:
            return WatchEvent(event_type, None, version, _text(faults))
        if event_type == "DELETED":
            fault = _text(faults) if faults else ""
            return WatchEvent(event_type, self.gone(key), version, fault)
        record, more = self.record_of(item)
        if faults or more:
            change = self.seen(record, True)  # noqa: FBT003 - a field, seldom set
            return WatchEvent(event_type, change, version, _text(faults + more))
        return WatchEvent(event_type, self.seen(record, False), version)  # noqa: FBT003

    def _read_hopeless_event(
        self, event_type: str, raw: msgspec.Raw, fault: str
    ) -> WatchEvent:
        """Return what is left of an event: a record kept before stays, or goes."""
        item = self._bare(raw)
        key = self.key_of(item)
        change = self.gone(key) if key and event_type == "DELETED" else None
        return WatchEvent(event_type, change, item.metadata.resource_version, fault)

    def _bare(self, raw: msgspec.Raw) -> _Object:
        """Return an object with nothing but the metadata that tells it from others."""
        tree = _tree_of(raw)
        found = tree.get("metadata") if isinstance(tree, dict) else None
        texts = {
            key: value
            for key, value in (found.items() if isinstance(found, dict) else ())
            if key in ("name", "namespace", "uid", "resourceVersion")
            and isinstance(value, str)
        }
        return self.object_type(metadata=msgspec.convert(texts, ObjectMeta))

    def _read_object(self, raw: msgspec.Raw) -> tuple[_Object | None, list[Fault]]:
        """Return as much of an object as decodes, and what does not."""
        try:
            return decode_object(raw, self.object_type), []
        except msgspec.ValidationError:
            return convert_with_faults(_tree_of(raw), self.object_type)


class _Table(Generic[_Kept]):
    """All records of a kind of which the ledger is told the sum, not each.

    Owned by the thread of the kind's reflector.

    Parameters
    ----------
    key_of : callable
        As that of the kind, of a record.
    change_of : callable
        Makes a change of all records.
    """

    def __init__(
        self,
        key_of: Callable[[_Kept], str],
        change_of: Callable[[Collection[_Kept]], Change],
    ) -> None:
        self._key_of = key_of
        self._change_of = change_of
        self._records: dict[str, _Kept] = {}

    def listed(self, records: tuple[_Kept, ...], partial: frozenset[str]) -> Change:
        """Replace all; one that did not decode keeps what was known of it."""
        kept = {key: self._records[key] for key in partial & self._records.keys()}
        self._records = {self._key_of(record): record for record in records} | kept
        return self._change_of(self._records.values())

    def seen(self, record: _Kept, is_partial: bool) -> Change:
        """Add or change one."""
        key = self._key_of(record)
        if not (is_partial and key in self._records):
            self._records[key] = record
        return self._change_of(self._records.values())

    def gone(self, key: str) -> Change:
        """Remove one."""
        self._records.pop(key, None)
        return self._change_of(self._records.values())


def _device_classes_listed(records: Collection[DeviceClass]) -> Change:
    """Return the change to the resources that these DeviceClasses carry."""
    resources = (record.spec.extended_resource_name for record in records)
    return DeviceClassesListed(frozenset(filter(None, resources)))


def nodes_kind(builder: RecordBuilder) -> WatchedKind[Node, NodeRecord]:
    """Return the kind of nodes."""
    return WatchedKind(
        name=NODES,
        path="/api/v1/nodes",
        is_optional=False,
        object_type=Node,
        page_decoder=msgspec.json.Decoder(Page[Node]),
        event_decoder=msgspec.json.Decoder(Event[Node]),
        key_of=lambda node: node.metadata.name,
        record_of=builder.node_record,
        listed=NodesListed,
        seen=NodeSeen,
        gone=NodeGone,
    )


def pods_kind(builder: RecordBuilder) -> WatchedKind[Pod, PodRecord]:
    """Return the kind of pods: all of them, whatever their phase."""
    return WatchedKind(
        name=PODS,
        path="/api/v1/pods",
        is_optional=False,
        object_type=Pod,
        page_decoder=msgspec.json.Decoder(Page[Pod]),
        event_decoder=msgspec.json.Decoder(Event[Pod]),
        key_of=lambda pod: pod.metadata.uid,
        record_of=builder.pod_record,
        listed=PodsListed,
        seen=PodSeen,
        gone=PodGone,
    )


def device_classes_kind() -> WatchedKind[DeviceClass, DeviceClass]:
    """Return the kind of DeviceClasses.

    Only ``v1`` (Kubernetes 1.34 and newer) is asked for: no earlier release has
    ``extendedResourceName``, which is all that we read of them.
    """
    table = _Table[DeviceClass](
        lambda record: record.metadata.name, _device_classes_listed
    )
    return WatchedKind(
        name=DEVICE_CLASSES,
        path="/apis/resource.k8s.io/v1/deviceclasses",
        is_optional=True,
        object_type=DeviceClass,
        page_decoder=msgspec.json.Decoder(Page[DeviceClass]),
        event_decoder=msgspec.json.Decoder(Event[DeviceClass]),
        key_of=lambda device_class: device_class.metadata.name,
        record_of=lambda device_class: (device_class, []),
        listed=table.listed,
        seen=table.seen,
        gone=table.gone,
    )


def limit_ranges_kind() -> WatchedKind[LimitRange, LimitRangeRecord]:
    """Return the kind of LimitRanges; without the right to, nothing is warned of."""
    table = _Table[LimitRangeRecord](lambda record: record.key, LimitRangesListed.of)
    return WatchedKind(
        name=LIMIT_RANGES,
        path="/api/v1/limitranges",
        is_optional=True,
        object_type=LimitRange,
        page_decoder=msgspec.json.Decoder(Page[LimitRange]),
        event_decoder=msgspec.json.Decoder(Event[LimitRange]),
        key_of=limit_range_key,
        record_of=limit_range_record,
        listed=table.listed,
        seen=table.seen,
        gone=table.gone,
    )


def _tree_of(raw: msgspec.Raw) -> Any:
    """Return plain JSON; raise `ApiError` if it is none."""
    try:
        return msgspec.json.decode(raw)
    except NO_JSON as error:
        raise undecodable("object", error) from error


def _note_page(listing: Listing[Any], metadata: ListMeta) -> None:
    """Note where the list stands after a page."""
    listing.resource_version = metadata.resource_version
    listing.continue_token = metadata.continue_token


def _text(faults: list[Fault]) -> str:
    """Return what is wrong with an object, in one line."""
    return str(faults[0]) if faults else "metadata: wanted a name and a UID, got none"
