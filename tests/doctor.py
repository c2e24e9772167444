"""Facts, certificates and registrations for the tests of the doctor."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from service.certificates.x509 import Authority, issue_leaf, make_authority
from service.commands.scheduler_config import (
    SchedulerOptions,
    build_scheduler_config,
    timeout_for,
)
from service.doctor.page import Facts, Finding, Unchecked, empty_facts
from service.doctor.registration import Registration
from service.doctor.scheduler import SchedulerConfig
from service.registration import build_registration
from service.settings.settings import Settings

NOW: Final = 1_800_000_000.0
DAY: Final = 86_400.0
HOST: Final = "gpu-extender.gpu-extender.svc"
AUTHORITY: Final = make_authority(NOW - 10 * DAY, 1000 * DAY)


def make_settings(**sections: Any) -> Settings:
    """Return settings with a webhook, and what a test says beside."""
    webhook = {"selfSigned": {"enabled": True}}
    tree = {"webhook": webhook, **sections}
    return Settings.model_validate_json(msgspec.json.encode(tree))


def make_certificate(
    *names: str,
    authority: Authority = AUTHORITY,
    starts: float = NOW - DAY,
    lifetime: float = 100 * DAY,
) -> str:
    """Return a certificate as PEM."""
    leaf = issue_leaf(authority, names or (HOST,), starts, lifetime)
    return leaf.certificate.decode()


def make_facts(settings: Settings | None = None, **more: Any) -> Facts:
    """Return the facts of a sound process."""
    facts = empty_facts(settings or make_settings())
    known = {"hostname": "host-1", "is_self_signed": False, **more}
    known.setdefault("certificate", make_certificate())
    return msgspec.structs.replace(facts, **known)


def make_registration_tree(
    settings: Settings | None = None,
    client: Mapping[str, Any] | None = None,
    bundle: bytes = AUTHORITY.certificate,
) -> Any:
    """Return the registration that is printed, with a bundle, as plain values."""
    service = {
        "namespace": "gpu-extender",
        "name": "gpu-extender",
        "path": "/mutate",
        "port": 443,
    }
    text = msgspec.json.encode(bundle).decode().strip('"')  # base64, as in JSON
    config = {"caBundle": text, **(client or {"service": service})}
    return build_registration(settings or make_settings(), config)


def read_registration(tree: Any) -> Registration:
    """Return a registration as it is read from the API server."""
    return msgspec.json.decode(msgspec.json.encode(tree), type=Registration)


def make_scheduler_tree(
    resources: Iterable[str], settings: Settings | None = None, port: int = 8888
) -> Any:
    """Return the scheduler's configuration that is printed, as plain values."""
    deadline = (settings or make_settings()).extender.deadline_milliseconds
    options = SchedulerOptions(
        "default-scheduler",
        f"http://127.0.0.1:{port}/scheduler",
        None,
        weight=10,
        timeout_seconds=timeout_for(deadline),
    )
    return build_scheduler_config(resources, options)


def read_scheduler(tree: Any) -> SchedulerConfig:
    """Return a configuration as it is read from a file."""
    return msgspec.convert(tree, SchedulerConfig)


def whats(found: Iterable[Finding | Unchecked]) -> list[str]:
    """Return what is wrong, each in its sentence."""
    return [item.what for item in found if isinstance(item, Finding)]
