"""Pods that get their node, compared with the calls about them."""

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from cluster.ledger.changes import PodSeen
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import SnapshotCell
from extender.tracking.binding_audit import GRACE_SECONDS, BindingAudit
from extender.tracking.last_answers import LastAnswers
from tests.builders import GPU, make_ledger, make_node, make_pod, make_pod_record
from tests.fakes.outcomes import make_filter_outcome, make_request

MIG = "nvidia.com/mig-3g.40gb"
CREATED = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC).timestamp()


class Cluster:
    """A ledger whose pods are called about and bound as a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.counted: Counter[str] = Counter()
        self.waits: list[float] = []
        self.answered = LastAnswers()
        self.cell = SnapshotCell()
        self._ledger: Ledger = make_ledger(nodes=[make_node(gpus=8)])
        self.cell.publish(self._ledger.build())
        self.audit = BindingAudit(
            self.cell,
            self.answered,
            lambda resource: resource.startswith("nvidia.com/"),
            frozenset({"default-scheduler"}),
            count=self._count,
            note_wait=self.waits.append,
            clock=lambda: CREATED + self.now,
            monotonic=lambda: self.now,
        )
        self.audit.look()
        self.now += GRACE_SECONDS

    def _count(self, resource: str) -> None:
        self.counted[resource] += 1

    def call(self, *names: str) -> None:
        for name in names:
            request = make_request(f"uid-of-default-{name}")
            self.answered.filtered(make_filter_outcome([0], pod_request=request))

    def bind(
        self,
        *names: str,
        resource: str = GPU,
        scheduler: str = "default-scheduler",
        created: str | None = None,
    ) -> None:
        for name in names:
            for node in ("", "node-1"):
                pod = make_pod(
                    name=name,
                    requests={resource: "1"},
                    node_name=node,
                    spec={"schedulerName": scheduler},
                )
                pod["metadata"]["creationTimestamp"] = created
                self._ledger.apply(PodSeen(make_pod_record(pod), is_partial=False))
        self.cell.publish(self._ledger.build())

    def uncalled(self) -> dict[str, int]:
        self.audit.look()
        return dict(self.audit.audited().uncalled_by_resource)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.fields["resource"]  # type: ignore[attr-defined]  # our own
        for record in caplog.records
        if record.levelno == logging.WARNING
    ]


def test_pods_that_we_were_asked_about_are_nothing_special(cluster: Cluster) -> None:
    cluster.call("a", "b")
    cluster.bind("a", "b")

    assert cluster.uncalled() == {}
    assert cluster.audit.audited().called == 2
    assert cluster.counted == {}


def test_a_resource_that_the_scheduler_does_not_send_is_named_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call("a")
    cluster.bind("a")
    cluster.bind("m", "n", resource=MIG)

    assert cluster.uncalled() == {MIG: 2}
    cluster.bind("o", resource=MIG)
    assert cluster.uncalled() == {MIG: 3}
    assert cluster.counted == {MIG: 3}
    assert warned(caplog) == [MIG]


def test_a_replica_that_is_never_called_warns_of_no_resource(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.bind("a")

    assert cluster.uncalled() == {GPU: 1}
    assert cluster.audit.audited().called == 0
    assert warned(caplog) == []


def test_a_resource_with_one_call_is_sent(cluster: Cluster) -> None:
    cluster.bind("a")
    cluster.call("b")
    cluster.bind("b")

    assert cluster.uncalled() == {}
    assert cluster.audit.audited().uncalled == 1


def test_pods_of_other_schedulers_are_not_ours(cluster: Cluster) -> None:
    cluster.bind("a", scheduler="volcano")

    assert cluster.uncalled() == {}
    assert cluster.counted == {}


def test_what_is_bound_in_the_first_moments_may_be_anothers_work() -> None:
    cluster = Cluster()
    cluster.now -= 0.1
    cluster.bind("a")
    assert cluster.uncalled() == {}

    cluster.now += 0.1
    cluster.bind("b")

    assert cluster.uncalled() == {GPU: 1}


def test_bindings_are_taken_once_also_when_many_are_dropped(cluster: Cluster) -> None:
    cluster.bind(*map(str, range(1500)))

    assert cluster.uncalled() == {GPU: 1024}
    assert cluster.uncalled() == {GPU: 1024}


def test_made_up_names_are_bounded(cluster: Cluster) -> None:
    for number in range(200):
        cluster.bind(str(number), resource=f"nvidia.com/x{number}")

    assert len(cluster.uncalled()) == 64
    assert len(cluster.counted) == 65
    assert cluster.counted["other"] == 136


def test_nothing_is_looked_at_before_the_first_snapshot() -> None:
    audit = BindingAudit(SnapshotCell(), LastAnswers(), bool, frozenset())

    audit.look()

    assert audit.audited().uncalled == 0


def test_calls_are_counted_with_the_most_nodes_of_one(cluster: Cluster) -> None:
    def offer(uid: str, count: int) -> None:
        verdicts: Iterable[int] = np.zeros(count, dtype=int).tolist()
        request = make_request(uid)
        cluster.answered.filtered(
            make_filter_outcome(list(verdicts), pod_request=request)
        )

    assert cluster.answered.filter_calls() == (0, 0)
    offer("a", 3)
    offer("b", 120)
    offer("c", 7)
    assert cluster.answered.filter_calls() == (3, 120)


def test_the_wait_of_our_scheduler_s_pods_is_told_once() -> None:
    cluster = Cluster()
    created = "2026-11-28T12:00:00Z"

    cluster.now = 7.5
    cluster.bind("called", created=created)
    cluster.bind("others", scheduler="volcano", created=created)
    cluster.bind("of unknown age")
    for _ in range(2):
        cluster.audit.look()
    cluster.bind("from the future", created="2026-11-28T12:00:09Z")
    cluster.audit.look()

    assert cluster.waits == [7.5, 0.0]
