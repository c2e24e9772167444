"""What tells a pod from others, and whose it is."""

from cluster.objects import Pod


def pod_key(pod: Pod) -> str:
    """Return the pod's UID; namespace and name where it has none, as in a dump.

    Empty for a pod that has no name either.
    """
    meta = pod.metadata
    if meta.uid or not meta.name:
        return meta.uid
    return f"{meta.namespace or 'default'}/{meta.name}"


def owner_uid(pod: Pod) -> str:
    """Return the UID of the pod's controller; empty for a pod without one."""
    owners = pod.metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.controller), "")
