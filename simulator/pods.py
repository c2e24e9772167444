"""`QueuedPod`: a pod that waits to be placed, in all forms that are read of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from cluster.decode.objects import PodRecord
from extender.explain.pod import Subject
from scoring.candidates import PodRequest
from scoring.resources import CPU

# Thousandths of one GPU.
WHOLE: Final = 1000

# Millicores, GPUs, thousandths of each, accepted models.
Shape: TypeAlias = tuple[int, int, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A pod that waits to be placed.

    Attributes
    ----------
    record : PodRecord
        As the cache would keep it while it has no node.
    pod_request : PodRequest
        What the verbs judge it by.
    gpus : int
        How many GPUs it takes; 0 where it takes none, or parts that are told apart by
        their resource alone.
    share : int
        Thousandths that it takes of each of them; below 1000 with one GPU only.
    models : tuple of str
        GPU models that it accepts; empty for any.
    """

    record: PodRecord
    pod_request: PodRequest
    gpus: int
    share: int = WHOLE
    models: tuple[str, ...] = ()

    @property
    def cpu(self) -> int:
        """Requested CPU, in millicores."""
        return dict(self.record.request).get(CPU, 0)

    @property
    def asked(self) -> int:
        """Thousandths of GPUs that it asks in all."""
        return self.gpus * self.share

    @property
    def shape(self) -> Shape:
        """What placement policies tell pods apart by."""
        return self.cpu, self.gpus, self.share, self.models

    def named(self, name: str) -> "QueuedPod":
        """Return the same pod under another name."""
        uid = f"{self.record.namespace}/{name}"
        record = msgspec.structs.replace(self.record, uid=uid, name=name)
        request = self.pod_request
        pod_request = PodRequest(
            uid,
            request.request,
            request.primary,
            request.accelerator,
            request.nominated_node,
            request.gpu_requirements,
        )
        return QueuedPod(record, pod_request, self.gpus, self.share, self.models)


def queue_subjects(subjects: Iterable[Subject]) -> Iterator[QueuedPod]:
    """Yield each pod of manifests as often as its object asks for it."""
    for subject in subjects:
        requirements = subject.pod_request.gpu_requirements
        uid = f"{subject.namespace}/{subject.name}"
        record = PodRecord(
            uid=uid,
            namespace=subject.namespace,
            name=subject.name,
            generate_name="",
            owner_uid="",
            node_name="",
            is_terminal=False,
            request=subject.request,
            is_managed=bool(subject.pod_request.request),
            created=0.0,
            is_gated=False,
            unschedulable_since=None,
            constraints=subject.constraints,
            gpu_requirements=requirements,
            scheduler_name=subject.scheduler_name,
            priority=subject.priority,
        )
        pod = QueuedPod(
            record,
            subject.pod_request,
            subject.pod_request.gpus,
            models=requirements.types,
        )
        if subject.replicas == 1:
            yield pod.named(subject.name)
            continue
        for number in range(subject.replicas):
            yield pod.named(f"{subject.name}-{number}")
