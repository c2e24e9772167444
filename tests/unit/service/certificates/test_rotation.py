"""Which step comes next, one moment after another."""

from dataclasses import replace

import pytest

from service.certificates.rotation import (
    Contents,
    Publish,
    Published,
    RotationOptions,
    Step,
    Write,
    may_serve,
    next_step,
    trusted_until_seconds,
)
from service.certificates.x509 import Authority, issue_leaf, make_authority
from tests.fakes.certificate_objects import NAMES, OPTIONS, START

OLD = make_authority(START, 3000)
NEW = make_authority(START, 3000)
LEAF = issue_leaf(OLD, NAMES, START, 300)
STEADY = Contents((OLD,), LEAF)


def published(*authorities: Authority) -> Published:
    return Published((tuple(one.certificate for one in authorities),))


def step_of(
    contents: Contents | None,
    seen: Published | None,
    after: float,
    options: RotationOptions = OPTIONS,
) -> Step | None:
    return next_step(contents, seen, START + after, options)


def written(
    contents: Contents | None,
    seen: Published | None,
    after: float,
    options: RotationOptions = OPTIONS,
) -> Contents:
    """Return what is to be written."""
    step = step_of(contents, seen, after, options)
    assert isinstance(step, Write)
    return step.contents


def since(authority: Authority, after: float) -> Authority:
    return replace(authority, published_seconds=START + after)


def test_nothing_is_done_while_all_is_well() -> None:
    assert step_of(STEADY, published(OLD), 99) is None


def test_first_a_ca_is_made_then_published_then_it_signs_at_once() -> None:
    first = written(None, published(), 0)
    (authority,) = first.authorities
    assert first.leaf is None

    assert step_of(first, published(), 1) == Publish((authority.certificate,))

    third = written(first, published(authority), 2)
    assert third.leaf is not None
    assert third.leaf.issuer == authority.certificate
    assert third.authorities == (since(authority, 2),)
    assert step_of(third, published(authority), 3) is None


def test_without_a_registration_the_first_ca_signs_at_once() -> None:
    first = written(None, None, 0)

    second = written(first, None, 0)

    assert second.leaf is not None
    assert step_of(second, None, 1) is None


def test_a_new_ca_stands_beside_what_others_may_still_serve() -> None:
    first = written(None, published(OLD), 5)
    old, new = first.authorities

    assert old == replace(OLD, key=b"", retired_seconds=START + 5)
    assert (new.key != b"", new.published_seconds) == (True, None)
    assert step_of(first, published(OLD), 5) == Publish(first.bundle)

    second = written(first, published(*first.authorities), 6)
    assert second.leaf is None
    assert step_of(second, published(*first.authorities), 35) is None
    third = written(second, published(*first.authorities), 36)
    assert third.leaf is not None
    assert third.leaf.issuer == new.certificate


def test_a_leaf_is_replaced_at_its_age_by_the_same_ca() -> None:
    renewed = written(STEADY, published(OLD), 100)

    assert renewed.leaf is not None
    assert renewed.leaf != LEAF
    assert renewed.leaf.issuer == OLD.certificate
    assert renewed.authorities == STEADY.authorities


def test_an_old_ca_gets_a_successor_that_does_not_sign_yet() -> None:
    contents = replace(STEADY, leaf=issue_leaf(OLD, NAMES, START + 990, 300))

    both = written(contents, published(OLD), 1000)

    assert both.leaf == contents.leaf
    assert both.authorities[0] == OLD
    assert both.authorities[1].published_seconds is None
    assert step_of(both, published(OLD), 1001) == Publish(both.bundle)


def test_a_successor_signs_once_every_api_server_has_heard_of_it() -> None:
    waiting = Contents((OLD, since(NEW, 0)), LEAF)
    seen = published(OLD, NEW)

    assert step_of(waiting, seen, 29) is None
    switched = written(waiting, seen, 30)

    assert switched.leaf is not None
    assert switched.leaf.issuer == NEW.certificate
    assert switched.authorities == (OLD.retired(START + 30), since(NEW, 0))


def test_reading_it_back_is_noted_once() -> None:
    both = Contents((OLD, NEW), LEAF)
    seen = published(OLD, NEW)

    noted = written(both, seen, 7)

    assert noted.authorities == (OLD, since(NEW, 7))
    assert step_of(noted, seen, 8) is None


def test_a_successor_that_vanished_from_the_registration_waits_again() -> None:
    waiting = Contents((OLD, since(NEW, 0)), LEAF)

    again = written(waiting, published(OLD), 40)

    assert again.authorities == (OLD, NEW)
    assert again.leaf == LEAF
    assert step_of(again, published(OLD), 41) == Publish(again.bundle)


def test_a_retired_ca_is_dropped_after_a_while_and_then_from_the_registration() -> None:
    leaf = issue_leaf(NEW, NAMES, START + 150, 300)
    switched = Contents((OLD.retired(START), NEW), leaf)
    seen = published(OLD, NEW)

    assert step_of(switched, seen, 199) is None
    dropped = written(switched, seen, 200)
    assert dropped == Contents((NEW,), leaf)
    assert step_of(dropped, seen, 201) == Publish((NEW.certificate,))


def test_a_registration_that_was_reset_is_put_right() -> None:
    assert step_of(STEADY, published(), 1) == Publish((OLD.certificate,))
    assert step_of(STEADY, published(NEW), 1) == Publish((OLD.certificate,))


def test_every_webhook_of_the_registration_counts() -> None:
    half = Published(((OLD.certificate,), ()))

    assert step_of(STEADY, half, 1) == Publish((OLD.certificate,))
    assert not may_serve(LEAF, half)
    assert may_serve(LEAF, None)


def test_with_ca_and_leaf_expired_the_next_ca_signs_without_delay() -> None:
    with_new = written(STEADY, published(OLD), 3000)
    assert with_new.leaf == LEAF
    (_, new) = with_new.authorities
    assert step_of(with_new, published(OLD), 3001) == Publish(with_new.bundle)

    signed = written(with_new, published(*with_new.authorities), 3002)

    assert signed.leaf is not None
    assert signed.leaf.issuer == new.certificate
    last = written(signed, published(*with_new.authorities), 3003)
    assert last.bundle == (new.certificate,)


def test_a_successor_that_expired_unpublished_is_replaced() -> None:
    leaf = issue_leaf(OLD, NAMES, START, 300)
    short = make_authority(START - 100, 110)
    contents = Contents((OLD, short), leaf)

    replaced = written(contents, None, 50, replace(OPTIONS, ca_rotation_seconds=40))

    assert replaced.authorities[0] == OLD
    assert len(replaced.authorities) == 2
    assert short not in replaced.authorities


def test_only_one_successor_waits_at_a_time() -> None:
    leaf = issue_leaf(OLD, NAMES, START + 1990, 300)
    contents = Contents((OLD, NEW), leaf)

    assert step_of(contents, None, 2000) is None


def test_a_leaf_that_lacks_a_name_is_replaced_and_keeps_the_others() -> None:
    options = replace(OPTIONS, names=frozenset({"other.example"}))

    renewed = written(STEADY, published(OLD), 1, options)

    assert renewed.leaf is not None
    assert renewed.leaf.names == NAMES | {"other.example"}
    # Nor does the replica with the old settings want another.
    assert step_of(renewed, published(OLD), 2) is None


def test_names_that_are_not_wanted_any_more_go_with_the_next_leaf() -> None:
    leaf = issue_leaf(OLD, [*NAMES, "gone.example"], START, 300)

    renewed = written(Contents((OLD,), leaf), published(OLD), 100)

    assert renewed.leaf is not None
    assert renewed.leaf.names == NAMES


@pytest.mark.parametrize("after", [0, 50])
def test_a_leaf_that_was_lost_is_made_by_the_ca_that_is_trusted(after: float) -> None:
    contents = Contents((since(OLD, -100), NEW))

    made = written(contents, published(OLD), after)

    assert made.leaf is not None
    assert made.leaf.issuer == OLD.certificate
    assert made.authorities[1] == NEW


@pytest.mark.parametrize(
    ("contents", "until"),
    [
        # Read 50 s after the start; dropped 200 s after it was retired, less 30 s.
        pytest.param(STEADY, 220, id="it signs: it may be retired at once"),
        pytest.param(Contents((OLD,)), 220, id="the leaf was lost, the CA was not"),
        pytest.param(Contents((OLD, NEW), LEAF), 220, id="a successor waits"),
        pytest.param(Contents((NEW, OLD)), 220, id="a successor that does not sign"),
        pytest.param(Contents((OLD.retired(START), NEW)), 170, id="retired before"),
        pytest.param(
            Contents((OLD.retired(START - 170), NEW)), 0, id="about to be dropped"
        ),
        pytest.param(
            Contents((OLD.retired(START + 60), NEW)),
            220,
            id="retired by a clock that is ahead",
        ),
        pytest.param(Contents((NEW,)), None, id="dropped, or lost"),
        pytest.param(Contents(()), None, id="nothing is there"),
    ],
)
def test_until_when_the_ca_of_a_leaf_is_trusted(
    contents: Contents, until: float | None
) -> None:
    seconds = trusted_until_seconds(contents, LEAF, START + 50, OPTIONS)

    assert seconds == (None if until is None else START + until)


def test_nothing_valid_is_dropped_while_there_is_no_leaf() -> None:
    old = OLD.retired(START - 500)
    waiting = Contents((old, since(NEW, 0)))
    seen = published(OLD, NEW)

    assert step_of(waiting, seen, 29) is None
    signed = written(waiting, seen, 30)
    dropped = written(signed, seen, 31)

    assert signed.bundle == waiting.bundle
    assert dropped.bundle == (NEW.certificate,)
