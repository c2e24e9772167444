"""Candidates that would take the pod with the victims that kube-scheduler names gone.

kube-scheduler finds the victims with its own filters alone and never asks ours about
them. Without the preempt verb it evicts pods from nodes that we go on refusing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from extender.verbs.lookup import read_pod_request
from extender.verbs.options import VerbOptions
from extender.wire.preempt import PreemptArgs, Victims
from scoring.candidates import PodRequest, take_columns, with_devices
from scoring.feasibility import Feasibility, judge, wants_linked_set
from scoring.protocols import BoundPod
from scoring.resources import Request
from scoring.snapshot import Snapshot, find_columns


@dataclass(frozen=True, slots=True, eq=False)
class Preemption:
    """The answer to one preempt call.

    Attributes
    ----------
    kept : mapping
        node name -> its victims as they were sent, in the order of the request
    result : Feasibility
        Of all C candidates, with the victims gone.
    """

    kept: Mapping[str, Victims]
    result: Feasibility


def preempt_nodes(
    args: PreemptArgs, snapshot: Snapshot, options: VerbOptions
) -> Preemption:
    """Drop the candidates that would refuse the pod with their victims gone.

    Raises
    ------
    WireError
        If the pod's request cannot be read.

    Notes
    -----
    The checks are those of the filter, so that a node is kept here exactly if the
    filter would take it afterwards, with three differences in how amounts count:

    - The victims' shares are taken out, each on the node on which we hold it. A victim
      that we do not hold there, because our watch has not brought it yet, is in no sum
      of ours: there is nothing to take out, and taking out what its own object says
      would free room that others use.
    - The nominated node is not exempt. The exemption is for a node whose victims are
      still ending; here they are named, and a node that does not get free by them
      would be emptied for nothing.
    - With ``counts: trust`` no node is dropped for amounts: every candidate has passed
      kube-scheduler's own trial with the same victims gone, counted with pods that we
      cannot see yet and without those whose end we have not seen. Where we find less
      room we are the ones behind, and dropping the node would leave a pod pending
      beside room that its priority entitles it to. ``counts: enforce`` says that
      kube-scheduler does not count these resources, and then our sum decides. What it
      knows nothing of, such as who wants the GPUs alone, decides under either.

    A node with an empty victim list is one that kube-scheduler finds free already: it
    stays unless we refuse it as it is. For a pod that insists on linked GPUs it goes:
    the node has been refused for its links, and nobody's leaving mends that. A pod that
    asks for nothing that we manage gets everything back, unknown nodes too.
    """
    pod_request = replace(read_pod_request(args.pod, options), nominated_node="")
    afterwards = without_victims(snapshot, args.victims, pod_request)
    columns = find_columns(afterwards, tuple(args.victims))
    candidates = take_columns(afterwards, columns, pod_request, options.label_keys)
    result = judge(candidates, pod_request, is_enforcing=options.is_enforcing)
    needs_victims = wants_linked_set(pod_request)
    kept = {
        name: victims
        for (name, victims), is_kept in zip(
            args.victims.items(), result.feasible.tolist(), strict=True
        )
        if is_kept and (victims.uids or not needs_victims)
    }
    return Preemption(kept, result)


def without_victims(
    snapshot: Snapshot, victims: Mapping[str, Victims], pod_request: PodRequest
) -> Snapshot:
    """Return the snapshot as it is once each node's victims have left that node.

    Whatever a verdict reads of the pods on a node is taken back here, amounts and
    company alike, so that the checks themselves are the filter's.

    Parameters
    ----------
    victims : mapping
        node name -> its victims
    pod_request : PodRequest
        The asking pod's own share never counts anyway, so it is left in place.
    """
    gpu_pods, exclusive_gpu_pods = (
        snapshot.gpus.gpu_pods.copy(),
        snapshot.gpus.exclusive_gpu_pods.copy(),
    )
    free_sets = snapshot.gpus.free_sets.copy()
    shares: list[tuple[str, Request]] = []
    for name, leaving in victims.items():
        column = snapshot.nodes.column_of.get(name)
        if column is None:
            continue
        gone: list[BoundPod] = []
        for uid in set(leaving.uids) - {pod_request.uid}:
            share = snapshot.bound_pods.get(uid)
            if share is None or share.node_name != name:
                continue
            shares.append((name, share.request))
            gpu_pods[column] -= 1
            exclusive_gpu_pods[column] -= share.gpu_requirements.is_exclusive
            gone.append(share)
        free_sets[column] = with_devices(snapshot, np.array([column]), gone)[0]
    for array in (gpu_pods, exclusive_gpu_pods, free_sets):
        array.setflags(write=False)
    gpus = replace(
        snapshot.gpus,
        gpu_pods=gpu_pods,
        exclusive_gpu_pods=exclusive_gpu_pods,
        free_sets=free_sets,
    )
    requested = snapshot.requested_with(shares, sign=-1)
    return replace(snapshot, requested=requested, gpus=gpus)
