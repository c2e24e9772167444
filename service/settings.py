"""Frozen models of the configuration file: every fault at once, with its path."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic.alias_generators import to_camel

from scoring.resources import shorten

PositiveSeconds = Annotated[float, pydantic.Field(gt=0, le=86_400)]
Seconds = Annotated[float, pydantic.Field(ge=0, le=86_400)]


class SettingsError(ValueError):
    """A configuration file with faults.

    Attributes
    ----------
    faults : tuple of str
        Each with its path and the value received.
    """

    def __init__(self, path: Path, faults: list[str]) -> None:
        lines = "".join(f"\n  {fault}" for fault in faults)
        super().__init__(f"{path.name}: {len(faults)} fault(s){lines}")
        self.faults = tuple(faults)


class SettingsModel(pydantic.BaseModel):
    """Frozen, strict, camelCase outside, unknown keys refused."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel
    )


class ServerSettings(SettingsModel):
    """Where and how the HTTP server listens."""

    host: str = pydantic.Field(default="127.0.0.1", description="Address to listen on.")
    port: Annotated[int, pydantic.Field(ge=0, le=65_535)] = pydantic.Field(
        default=8888, description="Port to listen on; 0 takes a free one."
    )
    threads: Annotated[int, pydantic.Field(ge=1, le=256)] = pydantic.Field(
        default=8, description="Requests that are worked on at the same time."
    )
    connection_limit: Annotated[int, pydantic.Field(ge=10, le=65_535)] = pydantic.Field(
        default=1000, description="Open connections; more wait to be accepted."
    )
    idle_timeout_seconds: Annotated[int, pydantic.Field(ge=95, le=3600)] = (
        pydantic.Field(
            default=150,
            description="When an idle connection is closed. Go's clients keep theirs"
            " for 90 s, so ours must last longer.",
        )
    )
    drain_seconds: Seconds = pydantic.Field(
        default=5.0,
        description="How long calls are still served after SIGTERM, with readiness"
        " off, until every client has noticed.",
    )
    stop_seconds: PositiveSeconds = pydantic.Field(
        default=10.0, description="How long calls under way may then take to finish."
    )


class WebhookSettings(SettingsModel):
    """Where and how the HTTPS listener of the webhook listens."""

    certificate_file: str | None = pydantic.Field(
        default=None,
        description="PEM file with the server's certificate, relative to this file;"
        " read again when it changes. Without one there is no HTTPS listener, and"
        " `/mutate` is served on the HTTP listener only.",
    )
    key_file: str | None = pydantic.Field(
        default=None, description="PEM file with the certificate's private key."
    )
    host: str = pydantic.Field(
        default="0.0.0.0",  # noqa: S104  the API server calls the pod's address
        description="Address to listen on.",
    )
    port: Annotated[int, pydantic.Field(ge=0, le=65_535)] = pydantic.Field(
        default=8443, description="Port to listen on; 0 takes a free one."
    )
    threads: Annotated[int, pydantic.Field(ge=1, le=256)] = pydantic.Field(
        default=8, description="Reviews that are worked on at the same time."
    )

    @pydantic.model_validator(mode="after")
    def _certificate_and_key(self) -> "WebhookSettings":
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("wanted certificateFile and keyFile together, got one")
        return self


class ClusterSettings(SettingsModel):
    """Where nodes and pods are read from."""

    source: Literal["file", "kubernetes"] = pydantic.Field(
        default="kubernetes",
        description="`kubernetes` watches a cluster, `file` reads dumps.",
    )
    files: tuple[str, ...] = pydantic.Field(
        default=(),
        description="Dumps as `kubectl get nodes,pods -A -o yaml` or `-o json` prints"
        " them, relative to this file. Reloaded when they change.",
    )
    poll_seconds: PositiveSeconds = pydantic.Field(
        default=1.0, description="How often files are looked at for changes."
    )
    kubeconfig: str | None = pydantic.Field(
        default=None,
        description="Path of a kubeconfig; without one the pod's own service account"
        " is used, then the default kubeconfig.",
    )
    context: str | None = pydantic.Field(
        default=None, description="Context of the kubeconfig."
    )
    read_timeout_seconds: PositiveSeconds = pydantic.Field(
        default=90.0,
        description="A watch that is silent for so long is taken for dead; bookmarks"
        " come every minute.",
    )
    stale_after_seconds: PositiveSeconds = pydantic.Field(
        default=180.0,
        description="Age of the last contact from which `/readyz/extender` is 503."
        " The verbs go on answering.",
    )

    @pydantic.model_validator(mode="after")
    def _files_belong_to_the_file_source(self) -> "ClusterSettings":
        if (self.source == "file") != bool(self.files):
            raise ValueError(
                "files: wanted at least one with source 'file' and none with"
                f" 'kubernetes', got {len(self.files)} with {self.source!r}"
            )
        return self


class LabelSettings(SettingsModel):
    """Node labels that the classic score reads."""

    accelerator: str = pydantic.Field(
        default="accelerator",
        description="GPU type of a node, for pods with a nodeSelector on it.",
    )
    interconnect: str = pydantic.Field(
        default="gpu-interconnect",
        description="`nvlink` where a node's GPUs are joined.",
    )


class FaultSignalSettings(SettingsModel):
    """What on a node says that its GPUs are not ready."""

    labels: dict[str, tuple[str, ...]] = pydantic.Field(
        default={
            "nvidia.com/mig.config.state": ("success",),
            "nvidia.com/gpu-driver-upgrade-state": (
                "",
                "upgrade-done",
                "upgrade-required",
            ),
        },
        description="Label key to the values with which the GPUs can be used.",
    )
    product_labels: tuple[str, ...] = pydantic.Field(
        default=("nvidia.com/gpu.product",),
        description="Labels whose value ends in `-MIG-INVALID` for a faulty layout.",
    )
    conditions: dict[str, Literal["True", "False", "Unknown"]] = pydantic.Field(
        default={},
        description="Node condition type to the status that is a fault, such as"
        " `AcceleratedHardwareReady: 'False'`.",
    )


class ExtenderSettings(SettingsModel):
    """How the verbs judge."""

    counts: Literal["trust", "enforce"] | None = pydantic.Field(
        default=None,
        description="`enforce` refuses a node whose free GPUs are too few by our own"
        " count; `trust` leaves that to kube-scheduler, which knows of pods that are"
        " not bound yet. Default: `enforce` for the source `file`, else `trust`.",
    )


class WeightSettings(SettingsModel):
    """Weight of each score term, in hundredths."""

    utilization: Annotated[int, pydantic.Field(ge=0, le=1000)] = 40
    type_match: Annotated[int, pydantic.Field(ge=0, le=1000)] = 30
    topology: Annotated[int, pydantic.Field(ge=0, le=1000)] = 30

    @pydantic.model_validator(mode="after")
    def _some_weight(self) -> "WeightSettings":
        if not self.utilization + self.type_match + self.topology:
            raise ValueError("wanted at least one weight above 0, got none")
        return self


class TargetSettings(SettingsModel):
    """Allocation ratio at which a node scores best."""

    low: Annotated[float, pydantic.Field(gt=0, lt=1)] = 0.6
    high: Annotated[float, pydantic.Field(gt=0, lt=1)] = 0.8

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> "TargetSettings":
        if self.low > self.high:
            raise ValueError(f"wanted low <= high, got {self.low} > {self.high}")
        return self


class ScoringSettings(SettingsModel):
    """How feasible nodes are ranked."""

    profile: Literal["classic"] = pydantic.Field(
        default="classic", description="A tested way to combine the terms."
    )
    weights: WeightSettings = pydantic.Field(
        default=WeightSettings(), description="Weight of each term, in hundredths."
    )
    target_utilization: TargetSettings = pydantic.Field(
        default=TargetSettings(),
        description="Part of a node's GPUs in use at which it scores 100.",
    )
    normalize: Literal["minMax"] = pydantic.Field(
        default="minMax", description="How totals become priorities."
    )
    max_score: Annotated[int, pydantic.Field(ge=1, le=100)] = pydantic.Field(
        default=10,
        description="Priority of the best node. kube-scheduler's contract says 10; it"
        " does not check, and multiplies a higher one into its own scores.",
    )
    compatible_types: dict[str, tuple[str, ...]] = pydantic.Field(
        default={
            "nvidia-tesla-v100": ("nvidia-tesla-a100",),
            "nvidia-tesla-a100": ("nvidia-tesla-v100",),
            "nvidia-tesla-t4": ("nvidia-rtx-3080", "nvidia-rtx-3090"),
        },
        description="Asked GPU type to the types that are accepted for it, at 70.",
    )


class LoggingSettings(SettingsModel):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = pydantic.Field(
        default="info", description="`debug` logs each request."
    )


class Settings(SettingsModel):
    """The configuration file."""

    server: ServerSettings = ServerSettings()
    webhook: WebhookSettings = WebhookSettings()
    cluster: ClusterSettings = pydantic.Field(
        default=ClusterSettings(), description="Where the cluster is read from."
    )
    gpu_resources: tuple[str, ...] = pydantic.Field(
        default=(
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-*",
            "amd.com/gpu",
        ),
        description="Resources, exact or with a final `*`, that make a pod a GPU pod.",
    )
    managed_prefixes: tuple[str, ...] = pydantic.Field(
        default=("nvidia.com/", "amd.com/"),
        description="Prefixes of the resources that are counted.",
    )
    labels: LabelSettings = LabelSettings()
    fault_signals: FaultSignalSettings = FaultSignalSettings()
    extender: ExtenderSettings = ExtenderSettings()
    scoring: ScoringSettings = ScoringSettings()
    logging: LoggingSettings = LoggingSettings()


def read_settings(path: Path) -> Settings:
    """Read a configuration file; raise `SettingsError` with every fault."""
    try:
        tree = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise SettingsError(path, [" ".join(str(error).split())]) from error
    if tree is None:
        tree = {}
    try:
        return Settings.model_validate_json(json.dumps(tree, default=str))
    except pydantic.ValidationError as error:
        faults = [_describe(item) for item in error.errors(include_url=False)]
        raise SettingsError(path, faults) from error


def _describe(item: Mapping[str, Any]) -> str:
    """Return one fault as path, what was wanted, and the value received."""
    where = ".".join(str(step) for step in item["loc"]) or "file"
    message = str(item["msg"]).removeprefix("Value error, ")
    got = "" if item["type"] == "value_error" else f", got {shorten(item['input'])}"
    return f"{where}: {message}{got}"
