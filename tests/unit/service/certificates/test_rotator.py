import logging
from dataclasses import replace
from pathlib import Path

import pytest

from service.certificates.files import CertificateError
from service.certificates.rotation import Contents
from service.certificates.rotator import Rotator, load_leaf
from service.certificates.store import ConflictError
from service.certificates.x509 import issue_leaf, make_authority
from tests.certificates import write_pair
from tests.fakes.certificate_objects import (
    NAMES,
    OPTIONS,
    START,
    CertificateObjects,
    ReplicaStore,
)


def contents_of(objects: CertificateObjects) -> Contents:
    assert objects.contents is not None
    return objects.contents


def check_for(objects: CertificateObjects, *replicas: Rotator, seconds: float) -> None:
    """Let time pass, with a check of each replica every ten seconds."""
    end = objects.now + seconds
    while objects.now < end:
        objects.now += 10
        for replica in replicas:
            replica.check()


def test_a_replica_is_not_ready_before_its_certificate_is_trusted() -> None:
    objects = CertificateObjects()
    replica = objects.replica()
    before = replica.not_ready_reasons()
    context = replica.context

    replica.check()

    assert before == ["certificate: none is published yet"]
    assert replica.not_ready_reasons() == []
    assert replica.context is not context
    assert replica.ends_seconds == START + 300


def test_a_second_replica_serves_the_same_certificate_and_writes_nothing() -> None:
    objects = CertificateObjects()
    first, second = objects.replica(), objects.replica()
    first.check()
    writes = objects.writes

    second.check()

    assert second._leaf == first._leaf
    assert objects.writes == writes


def test_of_two_that_start_at_once_one_makes_the_certificates() -> None:
    objects = CertificateObjects()
    others = [objects.replica()]

    def come_in() -> None:
        if others and objects.secret_version == 0:
            others.pop().check()

    late = objects.replica(before_call=come_in)

    late.check()

    assert len(contents_of(objects).authorities) == 1
    assert late._leaf == contents_of(objects).leaf


def test_a_rotation_from_the_first_ca_to_the_second() -> None:
    objects = CertificateObjects()
    replicas = objects.replica(), objects.replica()
    for replica in replicas:
        replica.check()
    (old,) = objects.bundle

    check_for(objects, *replicas, seconds=1030)
    beside = objects.bundle
    check_for(objects, *replicas, seconds=210)

    new = objects.bundle
    assert beside == (old, *new)
    assert [len(bundle) for _, bundle in objects.bundles] == [0, 1, 2, 1]
    for replica in replicas:
        assert replica._leaf is not None
        assert replica._leaf.issuer == new[0]
        assert replica.not_ready_reasons() == []


def test_a_leaf_that_is_not_trusted_yet_is_not_served() -> None:
    objects = CertificateObjects()
    replica = objects.replica()
    replica.check()
    served = replica._leaf
    other = make_authority(START, 3000)
    leaf = issue_leaf(other, NAMES, START, 300)
    objects.set_secret(Contents((*contents_of(objects).authorities, other), leaf))
    objects.failing.append("publish")

    replica.look()
    assert replica._leaf == served
    replica.look()

    assert replica._leaf == leaf


def test_what_another_has_just_published_is_not_taken_for_foreign() -> None:
    objects = CertificateObjects()
    first = objects.replica()
    first.check()
    old = contents_of(objects)
    new = make_authority(START, 3000)
    calls: list[int] = []

    def come_in() -> None:
        calls.append(0)
        if len(calls) == 2:  # between the two reads of `late`
            objects.set_secret(Contents((*old.authorities, new), old.leaf))
            objects.set_bundle((*objects.bundle, new.certificate))

    late = objects.replica(before_call=come_in)

    late.check()

    assert all(bundle for _, bundle in objects.bundles[1:])
    assert new.certificate in objects.bundle
    assert len(objects.bundles) == 3


def test_a_registration_that_lost_its_bundle_is_an_obstacle_until_it_has_it() -> None:
    objects = CertificateObjects()
    replica = objects.replica()
    replica.check()
    objects.set_bundle(())
    objects.failing.append("publish")

    replica.look()
    during = replica.not_ready_reasons()
    replica.look()

    assert during == ["certificate: its CA is not in the caBundle of the registration"]
    assert replica.not_ready_reasons() == []


def test_a_replica_that_was_cut_off_for_long_is_not_ready() -> None:
    objects = CertificateObjects()
    options = replace(OPTIONS, leaf_lifetime_seconds=900)
    replica = objects.replica(options)
    replica.check()
    objects.now += 200

    cut_off = replica.not_ready_reasons()
    replica.check()

    assert cut_off == ["certificate: last seen in the Secret 200 s ago"]
    assert replica.not_ready_reasons() == []


def test_an_expired_certificate_is_an_obstacle() -> None:
    objects = CertificateObjects()
    replica = objects.replica(replace(OPTIONS, drop_delay_seconds=900))
    replica.check()

    objects.now += 300

    (obstacle,) = replica.not_ready_reasons()
    assert obstacle.startswith("certificate of our own: expired 2030-")


def test_a_restart_makes_no_new_certificate() -> None:
    objects = CertificateObjects()
    objects.replica().check()
    writes, leaf = objects.writes, contents_of(objects).leaf

    again = objects.replica()
    again.check()

    assert again._leaf == leaf
    assert objects.writes == writes


def test_reads_that_took_too_long_are_made_again() -> None:
    objects = CertificateObjects()
    delays = [0.0, 31.0]

    def come_in() -> None:
        objects.now += delays.pop(0) if delays else 0.0

    replica = objects.replica(before_call=come_in)

    replica.check()

    assert contents_of(objects).authorities[0].made_seconds == START + 31


def test_objects_that_change_all_the_time_end_the_check() -> None:
    objects = CertificateObjects()

    def come_in() -> None:
        objects.set_secret(objects.contents, exists=objects.secret_version % 2 == 0)

    with pytest.raises(ConflictError, match="changed by others at each attempt"):
        objects.replica(before_call=come_in).check()


def test_failures_are_told_each_time_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    objects = CertificateObjects()
    replica = objects.replica()
    objects.failing += ["read_registration", "read_secret"]

    with caplog.at_level(logging.WARNING):
        replica.look()
        replica.look()
        replica.look()

    assert objects.results == [False, False, True]
    assert [record.message for record in caplog.records] == [
        "certificates not checked, trying again"
    ]


def test_a_fault_of_our_own_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    objects = CertificateObjects()

    def come_in() -> None:
        raise RuntimeError("ours")

    objects.replica(before_call=come_in).look()

    assert objects.results == [False]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_changed_ca_for_clients_makes_a_new_context(tmp_path: Path) -> None:
    client_ca, _ = write_pair(tmp_path)
    objects = CertificateObjects()
    store = ReplicaStore(objects, lambda: None)
    replica = Rotator(
        store, OPTIONS, 10.0, objects._note, client_ca=client_ca, clock=objects.clock
    )
    replica.load()
    replica.check()
    before = replica.context

    replica.load()
    after = replica.context
    client_ca.write_text("no certificate")

    with pytest.raises(CertificateError, match=r"client CA tls\.crt: "):
        replica.load()
    assert after is not before
    assert replica.context is after
    assert replica.files == (client_ca,)


def test_a_leaf_is_loaded_without_a_file() -> None:
    authority = make_authority(START, 3000)

    pair = load_leaf(issue_leaf(authority, NAMES, START, 300))

    assert (pair.name, pair.ends_seconds) == ("of our own", START + 300)


def test_a_look_at_a_secret_without_its_ca_keeps_nothing_ready() -> None:
    objects = CertificateObjects()
    replica = objects.replica(replace(OPTIONS, leaf_lifetime_seconds=900))
    replica.check()
    for seconds, contents in [(100, None), (60, Contents(())), (9, None)]:
        objects.now += seconds
        objects.set_secret(contents, exists=contents is not None)
        objects.failing.append("write")
        replica.look()
        assert replica.not_ready_reasons() == []

    objects.now += 1  # the drop delay less the switch delay, since the first look
    assert replica.not_ready_reasons() != []
    replica.look()  # makes a new CA, and lists the old one again: nobody had dropped it

    assert replica.not_ready_reasons() == []


def test_a_replica_that_hears_of_no_new_leaf_ends_with_its_retired_ca() -> None:
    objects = CertificateObjects()
    cut_off, other = objects.replica(), objects.replica()
    cut_off.check()
    contents = contents_of(objects)
    (old,) = contents.authorities
    objects.now += 50
    objects.set_secret(Contents((old.retired(objects.now),)))
    objects.failing.append("write")
    objects.now += 20
    cut_off.look()  # the CA is listed, and retired 20 s ago
    objects.now += 149
    still = cut_off.not_ready_reasons()
    objects.now += 1

    assert still == []
    assert cut_off.not_ready_reasons() == [
        "certificate: last seen in the Secret 150 s ago"
    ]
    assert other.not_ready_reasons() == ["certificate: none is published yet"]
