"""What becomes of a pod in the fallback step."""

from enum import StrEnum

from injector.weighing import Choice


class FallbackOutcome(StrEnum):
    """What became of a pod; the values are metric labels."""

    NOT_ASKED = "not_asked"
    """It asks for nothing that can fall."""
    NAMESPACE_EXCLUDED = "namespace_excluded"
    OPTED_OUT = "opted_out"
    ALREADY_WEIGHED = "already_weighed"
    NOT_SYNCED = "not_synced"
    MALFORMED = "malformed"
    KEPT = "kept"
    """There is room for it as it is."""
    KEPT_FULL = "kept_full"
    """There is room neither for it as it is nor for another form; its own exists."""
    CHANGED = "changed"
    CHANGED_FULL = "changed_full"
    """Its own resource exists nowhere; what it was changed to is not free now."""
    NOWHERE = "nowhere"
    """No node offers enough of any resource that it could take."""


def outcome_of(choice: Choice | None) -> FallbackOutcome:
    """Return what becomes of a pod for which `choice` was made; None for none."""
    if choice is None:
        return FallbackOutcome.NOWHERE
    if choice.plan.moves:
        full = FallbackOutcome.CHANGED_FULL
        return FallbackOutcome.CHANGED if choice.is_free else full
    return FallbackOutcome.KEPT if choice.is_free else FallbackOutcome.KEPT_FULL
