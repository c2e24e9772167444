"""Checks of the process itself: what it has read, and whether it is ready."""

from collections.abc import Iterator
from typing import Final

from service.doctor.page import Facts, Finding, listed

FILES: Final = "files"

READINESS: Final = "readiness"


def check_files(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for each file whose newest contents are not in use."""
    for name, faults in facts.refused_files.items():
        yield Finding(
            FILES,
            f"The newest contents of the file of `{name}` are refused: {faults}.",
            "The last good ones stay in use: what was changed has no effect, and the"
            " process would not start again.",
            "Mend them: `gpu-extender check-config` names every fault.",
        )
    if facts.waiting_keys:
        yield Finding(
            FILES,
            f"{listed(facts.waiting_keys)} in the configuration changed after the"
            " process had started.",
            "They take effect at a restart only: what runs is not what the file says.",
            "Restart gpu-extender, one replica after the other.",
        )


def check_readiness(facts: Facts) -> Iterator[Finding]:
    """Yield a finding about a process that is not ready, its certificate apart."""
    reasons = [
        reason
        for reason in facts.not_ready_reasons
        if reason not in facts.certificate_faults
    ]
    if reasons:
        yield Finding(
            READINESS,
            f"The extender is not ready: {'; '.join(reasons)}.",
            "Calls are answered 503 before the cluster is read, and later with verdicts"
            " on what was last seen of it.",
            "A moment after the start this passes. Else look in the log for `watch"
            " interrupted`, which says why.",
        )
