"""Explanations of nineteen pods that stay pending, each for a reason of its own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from cluster.ledger.writer import SnapshotCell
from extender.explain.explain import explain
from extender.explain.page import ExplanationPage, build_page
from extender.explain.pod import read_subjects
from extender.explain.summary_text import MAX_LINES, render_summary
from extender.explain.table import WIDTH
from scoring.snapshot import Snapshot, read_only
from service.commands.quota import ResourceQuota, find_quota_obstacles
from service.runtime import build_verb_options
from service.submission import preview_by
from service.webhook import Uncounted, Webhook
from tests.builders import Tree, make_snapshot
from tests.extender_app import make_settings
from tests.pending_pods import (
    FAILING,
    KEPT,
    PENDING,
    QUOTA,
    carry_out,
    make_bound_pods,
    make_neighbours,
    make_nodes,
)

GOLDEN: Final = Path(__file__).parent / "pending_pods.txt"
SETTINGS: Final = make_settings()
OPTIONS: Final = build_verb_options(SETTINGS)
NODES: Final = make_nodes()

# why it is pending -> what the first sentence says of it
SENTENCES: Final = {
    "gates": "Scheduling gates hold the pod",
    "accelerator selector": "node selector (accelerator=T4, there is nvidia-t4, ",
    "full type": "No node fits: 40 are full (needs 4 GPUs, at most 2 free), ",
    "unreadable annotation": "annotation gpu-extender.io/gpu-type: wanted",
    "exclusive": "No node fits: 6 have other GPU pods, and it wants to be alone, ",
    "failing node": "pods of several owners failed to start there lately",
    "wrong type": "No node fits: 137 have other GPUs (T4, ",
    "too many GPUs": "have too few GPUs (needs 16, largest node 8)",
    "MIG absent": "do not offer nvidia.com/mig-3g.40gb",
    "taint": "No node fits: 20 have a taint that it does not tolerate (team=ml:NoSched",
    "cordon": "No node fits: 6 are cordoned, ",
    "memory": "No node fits: 60 have too little GPU memory (needs 24Gi, largest 16Gi)",
    "shares": "No node fits: 4 have no whole GPUs (A10, shared by 4), ",
    "CPU": "No node fits: 60 lack CPU (needs 96, largest node 64), ",
    "quota": "The quota team of namespace ml refuses the pod: asks 4 nvidia.com/gpu, 2",
    "other scheduler": "The pod waits for another scheduler, 'volcano'",
    "misspelt type": "type 'A100-80' is no known GPU model (did you mean A100-80GB?)",
    "PVC": "may refuse them, since not modelled here: volumes (data)",
    "spread": "not modelled here: topology spread (topology.kubernetes.io/zone)",
}

# what keeps it from nodes that have room -> what the first sentence says of it
KEPT_SENTENCES: Final = {
    "no limit": "The API server refuses the pod: spec.containers[0].resources.limits:"
    " Required value: Limit must be set for non overcommitable resources.",
    "half a GPU": "The API server refuses the pod: spec.containers[0].resources.limits["
    'nvidia.com/gpu]: Invalid value: "500m": must be an integer; ',
    "request unlike the limit": "The API server refuses the pod: spec.containers[0]."
    'resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of',
    "host port": "No node fits: 111 have the host port 9400 in use (by monitoring/",
    "kept away": "No node fits: 60 have a pod near that keeps away pods with noisy=true"
    ", by kubernetes.io/hostname (ml/quiet-0), 77 do not match its node selector ",
    "preemption": "No node fits: 6 are full (needs 1 GPUs, at most 0 free), 131 do not",
    "no preemption": "No node fits: 6 are full (needs 1 GPUs, at most 0 free), 131 do",
    "group": "The pod waits for its group, ml/team: ",
    "named node": "The kubelet of a100-000 refuses the pod, OutOfnvidia.com/gpu: asks 1"
    " nvidia.com/gpu: 0 free of 8 ",
    "unknown node": "No kubelet takes the pod: spec.nodeName is a100-999, which the",
}

# why it is pending -> what would help, where that is in our hands
HELP: Final = {
    "accelerator selector": "select accelerator=nvidia-t4 instead of T4",
    "full type": "ask for at most 2 GPUs (2 nodes fit then)",
    "exclusive": "leave gpu-extender.io/exclusive out",
    "wrong type": "accept T4, too (60 nodes fit then)",
    "too many GPUs": "ask for at most 8 GPUs",
    "taint": "tolerate team=ml:NoSchedule (20 nodes fit then)",
    "cordon": "uncordon l4-000 or another of 6 such nodes",
    "memory": "ask for at most 16Gi of GPU memory (60 nodes fit then)",
    "shares": "take shared GPUs by gpu-extender.io/sharing: allowed",
    "CPU": "ask for at most 64 CPU (60 nodes fit then)",
    "misspelt type": "write A100-80GB for 'A100-80', which no node has",
}


def snapshot_of(nodes: list[Tree], pods: Sequence[Tree] = ()) -> Snapshot:
    """Return the cluster with these nodes, on one of which pods failed lately."""
    snapshot = make_snapshot(nodes=nodes, pods=[*make_bound_pods(), *pods])
    failing = [name == FAILING for name in snapshot.nodes.names]
    return replace(snapshot, failing=read_only_mask(failing))


def read_only_mask(values: list[bool]) -> Any:

    return read_only(np.array(values, dtype=np.bool_))


SNAPSHOT: Final = snapshot_of(NODES)
CROWDED: Final = snapshot_of(NODES, make_neighbours())


def explained(pod: Tree, snapshot: Snapshot = SNAPSHOT) -> ExplanationPage:
    """Explain a pod as the command does, admitted by the webhook first."""
    cell = SnapshotCell()
    cell.publish(snapshot)
    webhook = Webhook(cell, SETTINGS, Uncounted(), Path())
    (subject,) = read_subjects(pod, OPTIONS, preview_by(webhook.admission.preview))
    if pod is PENDING["quota"]:
        quota = msgspec.convert(QUOTA, ResourceQuota)
        subject = replace(subject, obstacles=find_quota_obstacles(subject, [quota]))
    return build_page(explain(subject, snapshot, OPTIONS))


def test_the_cluster_has_200_nodes_and_the_pods_are_19() -> None:
    assert len(NODES) == 200
    assert list(PENDING) == list(SENTENCES)
    assert len(PENDING) == 19


@pytest.mark.parametrize("why", PENDING)
def test_the_reason_stands_in_the_first_three_lines(why: str) -> None:
    lines = render_summary(explained(PENDING[why])).splitlines()

    assert SENTENCES[why] in " ".join(lines[:3])
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("why", KEPT)
def test_what_keeps_a_pod_from_nodes_with_room_is_said_and_no_node_fits(
    why: str,
) -> None:
    page = explained(KEPT[why], CROWDED)
    lines = render_summary(page).splitlines()

    assert page.summary is not None
    assert not page.summary.fits
    assert KEPT_SENTENCES[why] in " ".join(lines[:3])
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("why", ["host port", "kept away", "named node"])
def test_what_would_help_a_pod_that_is_kept_does(why: str) -> None:
    summary = explained(KEPT[why], CROWDED).summary
    assert summary is not None

    remedy = summary.remedies[0]
    pod, _ = carry_out(remedy, KEPT[why], NODES)
    after = explained(pod, CROWDED).summary
    assert after is not None
    assert after.fits, after.sentence
    fits = [g.node_count for g in after.groups if not (g.scheduler or g.ours)]
    assert fits == [remedy.node_count], remedy.text


@pytest.mark.parametrize("why", HELP)
def test_what_would_help_is_said_and_does(why: str) -> None:
    summary = explained(PENDING[why]).summary
    assert summary is not None

    assert summary.help.startswith(HELP[why]), summary.help
    assert f"Would help: {HELP[why]}" in render_summary(explained(PENDING[why]))
    remedy = summary.remedies[0]
    pod, nodes = carry_out(remedy, PENDING[why], NODES)
    after = explained(pod, snapshot_of(nodes)).summary
    assert after is not None
    assert after.fits, after.sentence


def test_the_explanations_are_printed_as_ever() -> None:
    printed = "".join(
        f"==== {why}\n{render_summary(explained(pod, snapshot))}\n"
        for pods, snapshot in ((PENDING, SNAPSHOT), (KEPT, CROWDED))
        for why, pod in pods.items()
    )

    assert printed == GOLDEN.read_text()
