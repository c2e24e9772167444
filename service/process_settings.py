"""Settings of the process: listeners, where the cluster is read from, logs."""

import ipaddress
from typing import Annotated, Literal

import pydantic
from pydantic.alias_generators import to_camel

from service.kubernetes_names import ListenAddress

PositiveSeconds = Annotated[float, pydantic.Field(gt=0, le=86_400)]
Seconds = Annotated[float, pydantic.Field(ge=0, le=86_400)]
NonEmpty = Annotated[str, pydantic.Field(min_length=1)]
# A resource name, or its beginning and a final asterisk.
ResourcePattern = Annotated[str, pydantic.Field(pattern=r"^[^*\s]+\*?$")]


class SettingsModel(pydantic.BaseModel):
    """Frozen, strict, camelCase outside, unknown keys refused."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel
    )


class ServerSettings(SettingsModel):
    """Where and how the HTTP server listens."""

    host: str = pydantic.Field(
        default="127.0.0.1",
        description="Loopback address to listen on: whoever reaches the verbs can ask"
        " about the cluster.",
    )
    port: Annotated[int, pydantic.Field(ge=0, le=65_535)] = pydantic.Field(
        default=8888, description="Port to listen on; 0 takes a free one."
    )
    max_in_flight: Annotated[int, pydantic.Field(ge=1, le=512)] = pydantic.Field(
        default=64,
        description="Calls of the verbs and of `/explain` that are worked on at the"
        " same time; one more is answered 503 at once.",
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

    @pydantic.field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        try:
            is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise ValueError(f"wanted a loopback address, got {host!r}")
        return host

    def url(self, port: int | None = None) -> str:
        """Return the listener's address; `port` is the one taken where 0 is set."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port if port is None else port}"


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
    host: ListenAddress = pydantic.Field(
        default="0.0.0.0",  # noqa: S104  the API server calls the pod's address
        description="Address to listen on.",
    )
    port: Annotated[int, pydantic.Field(ge=0, le=65_535)] = pydantic.Field(
        default=8443, description="Port to listen on; 0 takes a free one."
    )
    max_in_flight: Annotated[int, pydantic.Field(ge=1, le=512)] = pydantic.Field(
        default=64,
        description="Reviews that are worked on at the same time; one more is answered"
        " 503 at once.",
    )
    deadline_milliseconds: Annotated[int, pydantic.Field(ge=10, le=30_000)] = (
        pydantic.Field(
            default=4000,
            description="Age of a review at which the work on it stops, and the pod is"
            " answered as `injection.failurePolicy` says. Below the registration's"
            " `timeoutSeconds`.",
        )
    )

    @pydantic.model_validator(mode="after")
    def _certificate_and_key(self) -> "WebhookSettings":
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("wanted certificateFile and keyFile together, got one")
        return self


class FailingNodeSettings(SettingsModel):
    """When a node scores 0 because pods fail on it before they run."""

    owners: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=2,
        description="So many different owners' pods must have failed on the node: the"
        " pods of one job count once. 0 switches this off.",
    )
    seconds: PositiveSeconds = pydantic.Field(
        default=600.0,
        description="Within so much time; and for so long the node then scores 0.",
    )


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
    failing_nodes: FailingNodeSettings = pydantic.Field(
        default=FailingNodeSettings(),
        description="Nodes on which pods fail before they run.",
    )

    @pydantic.model_validator(mode="after")
    def _files_belong_to_the_file_source(self) -> "ClusterSettings":
        if (self.source == "file") != bool(self.files):
            raise ValueError(
                "files: wanted at least one with source 'file' and none with"
                f" 'kubernetes', got {len(self.files)} with {self.source!r}"
            )
        return self


class LoggingSettings(SettingsModel):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = pydantic.Field(
        default="info", description="`debug` logs each request."
    )
