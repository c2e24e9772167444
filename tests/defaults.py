"""Options that the defaults of the settings stand for."""

from typing import Final

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.failures import FailureLimits
from injector.rules.conflicts import RuleContext
from service.settings.settings import Settings
from service.webhook import build_fallback_options

SETTINGS: Final = Settings()
GPU_ANNOTATIONS: Final = SETTINGS.gpu_annotations()
FAILURE_LIMITS: Final = FailureLimits(**SETTINGS.cluster.failing_nodes.model_dump())
FALLBACK_OPTIONS: Final = build_fallback_options(
    SETTINGS.fallback, GpuRequirementsReader(GPU_ANNOTATIONS), None
)
HOLD_SECONDS: Final = SETTINGS.fallback.hold_seconds
# Of a webhook that does nothing but inject.
RULE_CONTEXT: Final = RuleContext(
    SETTINGS.injection.trigger_annotation, frozenset(), frozenset(), GPU_ANNOTATIONS
)
