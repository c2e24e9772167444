"""Settings of the process: listeners, source of the cluster, logs."""

from typing import Annotated, Literal

import pydantic
from pydantic.alias_generators import to_camel

from service.settings.names import (
    DnsName,
    IpAddress,
    LabelKey,
    ListenAddress,
    LoopbackUrl,
    NamespaceName,
    ObjectName,
    WebhookUrl,
    is_loopback,
)

PositiveSeconds = Annotated[float, pydantic.Field(gt=0, le=86_400)]

# Thirty years: what certificates are counted in.
LongSeconds = Annotated[float, pydantic.Field(gt=0, le=946_080_000)]

Seconds = Annotated[float, pydantic.Field(ge=0, le=86_400)]

NonEmpty = Annotated[str, pydantic.Field(min_length=1)]


class SettingsModel(pydantic.BaseModel):
    """Frozen, strict, camelCase outside, unknown keys refused."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel
    )


class ServerSettings(SettingsModel):
    """Address and limits of the HTTP listener."""

    host: str = pydantic.Field(
        default="127.0.0.1",
        description="Loopback address to listen on: any client of the verbs can ask"
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
    max_nodes: Annotated[int, pydantic.Field(ge=100, le=100_000)] = pydantic.Field(
        default=20_000,
        description="Nodes that a call may be about, more than the cluster will ever"
        " have; one more is answered 413 before anything is made of them.",
    )
    connection_limit: Annotated[int, pydantic.Field(ge=10, le=65_535)] = pydantic.Field(
        default=1000,
        description="Open connections; for one more the longest idle one is let go.",
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

    probe_port: Annotated[int, pydantic.Field(ge=0, le=65_535)] | None = pydantic.Field(
        default=None,
        description="Port of `webhook.host` that serves kubelet's probes alone, over"
        " plain HTTP: for a webhook with `clientCaFile`, where kubelet cannot shake"
        " hands. 0 takes a free one.",
    )
    scheduler_health_url: LoopbackUrl | None = pydantic.Field(
        default=None,
        description="Where the kube-scheduler in the same pod tells its health, such as"
        " `https://127.0.0.1:10259/livez`: `/livez/extender` asks it, too.",
    )

    @pydantic.field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        if not is_loopback(host):
            raise ValueError(f"wanted a loopback address, got {host!r}")
        return host

    def url(self, port: int | None = None) -> str:
        """Return the listener's address; `port` is the one taken where 0 is set."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port if port is None else port}"


class SelfSignedSettings(SettingsModel):
    """Certificates of our own, which the replicas share and rotate."""

    enabled: bool = pydantic.Field(
        default=False,
        description="Whether the certificate is made here, in place of"
        " `certificateFile`, and its CA written into the registration's `caBundle`."
        " Source `kubernetes` only; takes the rights of"
        " `deploy/rbac-self-signed.yaml`.",
    )
    namespace: NamespaceName = pydantic.Field(
        default="gpu-extender", description="Namespace of the Secret."
    )
    secret_name: ObjectName = pydantic.Field(
        default="gpu-extender-certificate",
        description="Secret with CA, certificate and keys; made if it is missing.",
    )
    registration_name: ObjectName = pydantic.Field(
        default="gpu-extender",
        description="MutatingWebhookConfiguration whose `caBundle` is kept, that of"
        " every webhook in it.",
    )
    dns_names: tuple[DnsName, ...] = pydantic.Field(
        default=("gpu-extender.gpu-extender.svc",),
        description="Names by which the API server calls the webhook.",
    )
    ip_addresses: tuple[IpAddress, ...] = pydantic.Field(
        default=(), description="Addresses by which it does, for a `url` without name."
    )
    leaf_lifetime_seconds: LongSeconds = pydantic.Field(
        default=7_776_000.0, description="How long a certificate is valid."
    )
    leaf_rotation_seconds: LongSeconds = pydantic.Field(
        default=2_592_000.0, description="Age at which it is replaced."
    )
    ca_lifetime_seconds: LongSeconds = pydantic.Field(
        default=63_072_000.0, description="How long a CA is valid."
    )
    ca_rotation_seconds: LongSeconds = pydantic.Field(
        default=31_536_000.0, description="Age at which another is made beside it."
    )
    switch_delay_seconds: PositiveSeconds = pydantic.Field(
        default=30.0,
        description="From a new CA's being read back from the registration to its first"
        " certificate: until then every API server must have heard of it.",
    )
    drop_delay_seconds: LongSeconds = pydantic.Field(
        default=86_400.0,
        description="How long the old CA stays in `caBundle` after that. A replica that"
        " has not seen the CA of its certificate in the Secret for so long, less"
        " `switchDelaySeconds`, is not ready.",
    )
    check_seconds: PositiveSeconds = pydantic.Field(
        default=10.0,
        description="How often each replica looks at Secret and registration.",
    )

    @pydantic.model_validator(mode="after")
    def _order_of_times(self) -> "SelfSignedSettings":
        overlap_seconds = self.switch_delay_seconds + self.drop_delay_seconds
        for shorter, what, longer in (
            (
                self.leaf_rotation_seconds,
                "leafRotation < leafLifetime",
                self.leaf_lifetime_seconds,
            ),
            (
                self.ca_rotation_seconds,
                "caRotation < caLifetime",
                self.ca_lifetime_seconds,
            ),
            (
                overlap_seconds,
                "switchDelay + dropDelay < caRotation",
                self.ca_rotation_seconds,
            ),
            (
                self.check_seconds + self.switch_delay_seconds,
                "check + switchDelay < dropDelay",
                self.drop_delay_seconds,
            ),
        ):
            if not shorter < longer:
                raise ValueError(f"wanted {what}, got {shorter:g} s and {longer:g} s")
        return self

    @pydantic.model_validator(mode="after")
    def _some_name(self) -> "SelfSignedSettings":
        if not (self.dns_names or self.ip_addresses):
            raise ValueError("wanted one of dnsNames or ipAddresses, got none")
        return self


class WebhookSettings(SettingsModel):
    """Address, certificate and limits of the webhook's HTTPS listener."""

    certificate_file: str | None = pydantic.Field(
        default=None,
        description="PEM file with the server's certificate, relative to this file;"
        " read again when it changes. Without one, and without `selfSigned`, there is"
        " no HTTPS listener, and `/mutate` is served on the HTTP listener only.",
    )
    key_file: str | None = pydantic.Field(
        default=None, description="PEM file with the certificate's private key."
    )
    self_signed: SelfSignedSettings = pydantic.Field(
        default=SelfSignedSettings(), description="Certificates of our own."
    )
    registration: Literal["rendered", "patched"] = pydantic.Field(
        default="rendered",
        description="`rendered`: whoever installs gpu-extender applies what"
        " `gpu-extender webhook-config` prints. `patched`: the registration is applied"
        " without `webhooks` (`deploy/registration.yaml`), and each replica adds that"
        " entry, and keeps it up to date, once the address in it is answered under the"
        " CA that is published. Source `kubernetes` and a certificate only.",
    )
    url: WebhookUrl | None = pydantic.Field(
        default=None,
        description="Where the API server calls, for hosts without a Service. Without"
        " it, that is the Service of the first name in `selfSigned.dnsNames` that is"
        " one of a Service.",
    )
    ca_file: str | None = pydantic.Field(
        default=None,
        description="PEM file with the CA that has signed `certificateFile`, which"
        " becomes the entry's `caBundle` with `registration: patched`; read at each"
        " look. Without one, `ca.crt` beside `certificateFile`.",
    )
    client_ca_file: str | None = pydantic.Field(
        default=None,
        description="PEM file with the CA of the API server's client certificate; read"
        " again when it changes. With it, a client whose certificate this CA has not"
        " signed is refused at the handshake, probes over HTTPS, too.",
    )
    host: ListenAddress = pydantic.Field(
        default="0.0.0.0",  # noqa: S104  the API server calls the pod's address
        description="Address to listen on.",
    )
    port: Annotated[int, pydantic.Field(ge=0, le=65_535)] = pydantic.Field(
        default=8443, description="Port to listen on; 0 takes a free one."
    )
    max_in_flight: Annotated[int, pydantic.Field(ge=1, le=512)] = pydantic.Field(
        default=128,
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
        if self.self_signed.enabled and self.certificate_file is not None:
            raise ValueError("wanted certificateFile or selfSigned, got both")
        has_https = self.self_signed.enabled or self.certificate_file is not None
        if self.client_ca_file is not None and not has_https:
            raise ValueError("wanted a certificate beside clientCaFile, got none")
        if self.registration == "patched" and not has_https:
            raise ValueError("wanted a certificate with registration patched, got none")
        if self.ca_file is not None and self.certificate_file is None:
            raise ValueError("wanted certificateFile beside caFile, got none")
        return self


class FailingNodeSettings(SettingsModel):
    """Limits from which a node scores 0 because pods fail on it before they run."""

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
    """Source of nodes and pods."""

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
        description="Age of the last object or bookmark that could be read, from which"
        " `/readyz/extender` is 503. The verbs go on answering. Bookmarks come every"
        " minute: much less turns a quiet cluster off.",
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


class ElectionSettings(SettingsModel):
    """Election of the replica that answers for the whole cluster."""

    lease_name: ObjectName = pydantic.Field(
        default="gpu-extender",
        description="Lease in the namespace of our own pod, from `deploy/lease.yaml`;"
        " it is not made if it is missing.",
    )
    active_label: LabelKey = pydantic.Field(
        default="gpu-extender.io/active",
        description="Label that the holder sets to `true` on its own pod and takes off"
        " all others: what the webhook's Service selects by.",
    )
    lease_seconds: Annotated[int, pydantic.Field(ge=2, le=3600)] = pydantic.Field(
        default=6,
        description="How long the others wait for a holder of whom nothing new is"
        " seen. More than `renewDeadlineSeconds`.",
    )
    renew_deadline_seconds: PositiveSeconds = pydantic.Field(
        default=4.0,
        description="How long a holder that cannot renew the lease counts as one. More"
        " than 1.2 times `retrySeconds`.",
    )
    retry_seconds: PositiveSeconds = pydantic.Field(
        default=1.0, description="Time between two looks at the lease."
    )

    @pydantic.model_validator(mode="after")
    def _order_of_times(self) -> "ElectionSettings":
        for shorter, what, longer in (
            (
                self.renew_deadline_seconds,
                "renewDeadlineSeconds < leaseSeconds",
                self.lease_seconds,
            ),
            (
                1.2 * self.retry_seconds,
                "1.2 retrySeconds < renewDeadlineSeconds",
                self.renew_deadline_seconds,
            ),
        ):
            if not shorter < longer:
                raise ValueError(f"wanted {what}, got {shorter:g} s and {longer:g} s")
        return self


class LoggingSettings(SettingsModel):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = pydantic.Field(
        default="info", description="`debug` logs each request."
    )
    slow_call_milliseconds: int = pydantic.Field(
        default=500,
        ge=0,
        le=60_000,
        description="A call of a verb or a review that took longer is logged, one a"
        " second at most; 0 logs none.",
    )
