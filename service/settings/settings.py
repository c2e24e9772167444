"""Settings: the whole configuration file, every fault at once with its path."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import pydantic
from pydantic.fields import FieldInfo

from cluster.yaml_text import UNREADABLE, describe_unreadable, parse_unique
from injector.fallback.chains import find_chain_faults
from scoring.faults import Fault, FaultsError, list_faults
from scoring.gpu.models import GpuTableError
from scoring.gpu.requirements import GpuAnnotations
from scoring.quantity import shorten
from scoring.resources import ResourceScope
from service.settings.gpu import (
    DemandSettings,
    GpuTypeSettings,
    LinkAnnotationSettings,
)
from service.settings.names import NamePattern
from service.settings.policy import (
    ExtenderSettings,
    FaultSignalSettings,
    LabelSettings,
    ScoringSettings,
)
from service.settings.process import (
    ClusterSettings,
    ElectionSettings,
    LoggingSettings,
    NonEmpty,
    ServerSettings,
    SettingsModel,
    WebhookSettings,
)
from service.settings.webhook import FallbackSettings, InjectionSettings

_TRIGGER: Final = "injection.triggerAnnotation"

_GPU_TYPE: Final = "demandAnnotations.gpuType"

# Those that are written come first.
_PATHS: Final = (
    "fallback.annotations.record",
    "fallback.annotations.mark",
    "extender.wakeUpAnnotation",
    "fallback.annotations.optOut",
    "fallback.annotations.sharing",
    _TRIGGER,
    _GPU_TYPE,
    "demandAnnotations.minGpuMemory",
    "demandAnnotations.exclusive",
    "demandAnnotations.linked",
    "linkAnnotations.links",
    "linkAnnotations.allocated",
)

# A rule's key may be the name of a model.
_MAY_BE_ONE: Final = frozenset({_TRIGGER, _GPU_TYPE})


def find_name_clashes(tree: Any, defaults: Any) -> Iterator[Fault]:
    """Yield a fault for each annotation that has the name of another one.

    Parameters
    ----------
    tree : Any
        A configuration file as parsed, sound or not.
    defaults : Any
        The same with all defaults.
    """
    first: dict[str, str] = {}  # name -> path
    for path in _PATHS:
        name = _value(tree, path)
        if name is None:
            name = _value(defaults, path)
        if not isinstance(name, str):
            continue
        other = first.setdefault(name, path)
        if other != path and {path, other} != _MAY_BE_ONE:
            message = f"wanted a name of its own, got {name!r}, which is also {other}"
            yield Fault(path, message)


def _value(tree: Any, path: str) -> Any:
    """Return what stands at `path`, None if nothing does."""
    for step in path.split("."):
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


_UNREADABLE = (*UNREADABLE, TypeError)  # for dates as keys


class SettingsError(FaultsError):
    """A configuration file with faults."""

    def __init__(self, path: Path, faults: Sequence[Fault]) -> None:
        super().__init__(faults, list_faults(path.name, faults))


class Settings(SettingsModel):
    """The configuration file."""

    server: ServerSettings = ServerSettings()
    webhook: WebhookSettings = WebhookSettings()
    cluster: ClusterSettings = pydantic.Field(
        default=ClusterSettings(), description="Where the cluster is read from."
    )
    gpu_resources: tuple[NamePattern, ...] = pydantic.Field(
        default=(
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-*",
            "amd.com/gpu",
            *(f"amd.com/{mode}_*" for mode in ("spx", "dpx", "tpx", "qpx", "cpx")),
        ),
        description="Resources, exact or with a final `*`, that make a pod a GPU pod.",
    )
    managed_prefixes: tuple[NonEmpty, ...] = pydantic.Field(
        default=("nvidia.com/", "amd.com/"),
        description="Prefixes of the resources that are counted.",
    )
    labels: LabelSettings = LabelSettings()
    fault_signals: FaultSignalSettings = FaultSignalSettings()
    gpu_types: GpuTypeSettings = GpuTypeSettings()
    demand_annotations: DemandSettings = DemandSettings()
    link_annotations: LinkAnnotationSettings = LinkAnnotationSettings()
    extender: ExtenderSettings = ExtenderSettings()
    scoring: ScoringSettings = ScoringSettings()
    injection: InjectionSettings = InjectionSettings()
    fallback: FallbackSettings = FallbackSettings()
    election: ElectionSettings = ElectionSettings()
    logging: LoggingSettings = LoggingSettings()

    def with_port(self, port: int | None) -> "Settings":
        """Return the settings with another port of the HTTP listener, if any."""
        if port is None:
            return self
        server = self.server.model_copy(update={"port": port})
        return self.model_copy(update={"server": server})

    def gpu_annotations(self) -> GpuAnnotations:
        """Return by which annotations a pod says what it wants of the GPUs."""
        return self.demand_annotations.annotations(
            self.fallback.annotations.sharing, self.injection.trigger_annotation
        )

    def scope(self) -> ResourceScope:
        """Return which resources are looked at."""
        return ResourceScope(self.gpu_resources, self.managed_prefixes)


def read_settings(path: Path) -> Settings:
    """Read a configuration file; raise `SettingsError` with every fault."""
    try:
        tree = parse_unique(path.read_bytes())
        text = json.dumps({} if tree is None else tree, default=str)
    except _UNREADABLE as error:
        where = str(path) if isinstance(error, OSError) else ""
        raise SettingsError(path, [Fault(where, describe_unreadable(error))]) from error
    try:
        settings = Settings.model_validate_json(text)
    except pydantic.ValidationError as error:
        faults = [_describe(item) for item in error.errors(include_url=False)]
        chains, scope = _chains_of(tree), _scope_of(tree)
        faults += find_chain_faults(chains, scope=scope)
        faults += find_name_clashes(tree, _defaults())
        raise SettingsError(path, faults) from error
    found = find_chain_faults(settings.fallback.chains, scope=settings.scope())
    found += find_name_clashes(tree, _defaults())
    if settings.webhook.self_signed.enabled and settings.cluster.source == "file":
        wanted = "wanted source 'kubernetes' beside it, got 'file'"
        found.append(Fault("webhook.selfSigned", wanted))
    if settings.webhook.registration == "patched" and settings.cluster.source == "file":
        wanted = "wanted source 'kubernetes' beside 'patched', got 'file'"
        found.append(Fault("webhook.registration", wanted))
    try:
        settings.gpu_types.rules()
    except GpuTableError as error:
        found += [Fault("gpuTypes", str(fault)) for fault in error.faults]
    if found:
        raise SettingsError(path, found)
    return settings


def _defaults() -> dict[str, Any]:
    """Return the configuration that an empty file stands for."""
    return Settings().model_dump(by_alias=True)


def _chains_of(tree: Any) -> list[list[str]]:
    """Return the fallback chains of a faulty file, as far as they are lists of text."""
    fallback = tree.get("fallback") if isinstance(tree, dict) else None
    chains = fallback.get("chains") if isinstance(fallback, dict) else None
    return [
        chain
        for chain in (chains if isinstance(chains, list) else [])
        if isinstance(chain, list) and all(isinstance(name, str) for name in chain)
    ]


def _scope_of(tree: Any) -> ResourceScope | None:
    """Return which resources a faulty file looks at; None if it is faulty in that."""
    known = tree if isinstance(tree, dict) else {}
    own = {
        key: known[key] for key in ("gpuResources", "managedPrefixes") if key in known
    }
    try:
        return Settings.model_validate_json(json.dumps(own, default=str)).scope()
    except pydantic.ValidationError:
        return None


def _describe(item: Mapping[str, Any]) -> Fault:
    """Return one fault as path, what was wanted, and the value received."""
    where = ".".join(str(step) for step in item["loc"]) or "file"
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        message = f"unknown key{_near_key(item['loc'])}"
    got = "" if item["type"] == "value_error" else f", got {shorten(item['input'])}"
    return Fault(where, f"{message}{got}")


def _near_key(path: Sequence[str | int]) -> str:
    """Return which key a misspelt one was perhaps meant for."""
    model: type[pydantic.BaseModel] | None = Settings
    for step in path[:-1]:
        if model is not None and isinstance(step, str):
            fields = model.model_fields.items()
            named = (one for name, one in fields if step == (one.alias or name))
            model = _model_of(next(named, None))
    if model is None:
        return ""
    keys = [one.alias or name for name, one in model.model_fields.items()]
    near = difflib.get_close_matches(str(path[-1]), keys, n=1, cutoff=0.75)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _model_of(field: FieldInfo | None) -> type[pydantic.BaseModel] | None:
    """Return the model of a field's value, or of each of its values."""
    unread = [] if field is None else [field.annotation]
    while unread:
        kind = unread.pop()
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            return kind
        unread += get_args(kind)
    return None
