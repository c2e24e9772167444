"""`QueuedPod`: a pod that waits to be placed, and what devices it takes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec

from cluster.decode.objects import PodRecord
from cluster.decode.records import RecordBuilder
from extender.explain.pod import Subject
from scoring.gpu.node_gpus import NodeGpus
from scoring.gpu.suitability import choice_of
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
        As the cache would keep it while it has no node, and as it is judged.
    gpus : int
        How many GPUs it takes; 0 where it takes none, or parts that are told apart by
        their resource alone.
    share : int
        Thousandths that it takes of each of them; below 1000 with one GPU only.
    models : tuple of str
        GPU models that it accepts; empty for any.
    obstacle : str
        What keeps it from every node, such as a scheduling gate; empty for nothing.
    """

    record: PodRecord
    gpus: int
    share: int = WHOLE
    models: tuple[str, ...] = ()
    obstacle: str = ""

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
        return replace(self, record=record)


def queue_subjects(
    subjects: Iterable[Subject], kinds: Sequence[NodeGpus], builder: RecordBuilder
) -> Iterator[QueuedPod]:
    """Yield each pod of manifests as often as its object asks for it.

    Without a label for it, the pods of one object are one job, as of one controller.

    Parameters
    ----------
    kinds : sequence of NodeGpus
        The GPUs that the cluster has.
    builder : RecordBuilder
        Reads which model a node selector names, and by what label pods are of one job.
    """
    for place, subject in enumerate(subjects):
        request = subject.pod_request
        has_siblings = subject.replicas > 1 and not builder.job_label
        own_job = f"{subject.namespace}/{subject.name} {place}" if has_siblings else ""
        requirements = request.gpu_requirements
        record = PodRecord(
            uid=f"{subject.namespace}/{subject.name}",
            namespace=subject.namespace,
            name=subject.name,
            generate_name="",
            owner_uid="",
            node_name="",
            is_terminal=False,
            request=subject.request,
            is_managed=bool(request.request),
            created=0.0,
            is_gated=False,
            unschedulable_since=None,
            constraints=subject.constraints,
            gpu_requirements=requirements,
            scheduler_name=subject.scheduler_name,
            priority=subject.priority,
            job=request.job or own_job,
            selected_models=builder.selected_models(subject.constraints),
        )
        pod = QueuedPod(
            record,
            request.gpus,
            models=_accepted(requirements.types, kinds),
            obstacle=next((obstacle.text for obstacle in subject.obstacles), ""),
        )
        if subject.replicas == 1:
            yield pod.named(subject.name)
            continue
        for number in range(subject.replicas):
            yield pod.named(f"{subject.name}-{number}")


def _accepted(types: tuple[str, ...], kinds: Sequence[NodeGpus]) -> tuple[str, ...]:
    """Return the models of `kinds` that a list of types accepts; empty for any."""
    if not types:
        return ()
    models = (gpus.model for gpus in kinds if choice_of(gpus, types) < len(types))
    return tuple(dict.fromkeys(models)) or types
