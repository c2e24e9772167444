"""``gpu-extender doctor``: what is wrong with an installation."""

import http.client
import sys
import textwrap
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from cluster.api.protocol import NamedApi
from extender.explain.table import WIDTH
from service.cluster_link import connect_to
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    EXIT_NOT_REACHED,
    NoClusterError,
    reach,
    read_or_default,
    write_quietly,
)
from service.doctor.callers_view import with_callers_view, with_scheduler_config
from service.doctor.certificate import day, read_chain
from service.doctor.page import (
    Facts,
    Finding,
    Page,
    Unchecked,
    empty_facts,
)
from service.doctor.scheduler import read_scheduler_config
from service.http.middleware import DOCTOR_PATH
from service.settings.process import ClusterSettings
from service.settings.settings import Settings

EXIT_FINDINGS: Final = 1

SERVICE: Final = "service"

# It asks the API server itself, for `self_check.ASK_SECONDS` and some bounds of single
# questions.
PAGE_SECONDS: Final = 40.0

CONNECT_SECONDS: Final = 4.0


class DoctorOptionError(ValueError):
    """An option that cannot be used."""


class _NoPageError(RuntimeError):
    """A service that does not say how it is, with the finding about that."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Options of the command line.

    Attributes
    ----------
    config : Path or None
        Of the service; else what it says itself counts.
    url : str or None
        Where the service answers; else as the configuration says.
    kubeconfig, context
        Of the caller.
    scheduler_config : Path or None
        What kube-scheduler is started with.
    output : str
        ``text`` or ``json``.
    """

    config: Path | None
    url: str | None
    kubeconfig: Path | None
    context: str | None
    scheduler_config: Path | None
    output: str


def run_doctor(options: DoctorOptions) -> int:
    """Examine an installation, print what is found; return the exit status."""
    try:
        settings = read_or_default(options.config)
        url = _checked_url(options.url or settings.server.url())
        config = None
        if options.scheduler_config is not None:
            config = read_scheduler_config(options.scheduler_config)
        api, why_not = _connect(options)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAULTY_INPUT
    page = _own_page(url, settings)
    try:
        if api is not None:
            reach(api, ["/version"])
    except NoClusterError as error:
        write_quietly(render(page, options.output))
        sys.stderr.write(f"{error}\n")
        return EXIT_NOT_REACHED
    if config is not None:
        page = with_scheduler_config(page, config, str(options.scheduler_config))
    if api is not None:
        page = with_callers_view(page, api, time.time())
    elif page.facts.source != "file":
        unread = Unchecked("what your own rights show", why_not)
        page = msgspec.structs.replace(page, unchecked=(*page.unchecked, unread))
    write_quietly(render(page, options.output))
    return EXIT_FINDINGS if page.findings else 0


def _connect(options: DoctorOptions) -> tuple[NamedApi | None, str]:
    """Return the caller's API server, or why there is none.

    Raises `ValueError` for one that is named and cannot be used: what the service says
    of itself needs none.
    """
    try:
        return connect_to(_cluster_of(options), Path.cwd()), ""
    except ValueError as error:
        if options.kubeconfig is not None or options.context is not None:
            raise
        return None, str(error)


def _cluster_of(options: DoctorOptions) -> ClusterSettings:
    """Return how the caller, not the service, reaches the API server."""
    kubeconfig = options.kubeconfig
    return ClusterSettings(
        kubeconfig=None if kubeconfig is None else str(kubeconfig.resolve()),
        context=options.context,
    )


def _checked_url(text: str) -> str:
    """Return a URL without a final slash; raise `DoctorOptionError`."""
    try:
        parts = urlsplit(text)
        _ = parts.port
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_good = False
    if not is_good:
        wanted = f"wanted a URL such as http://127.0.0.1:8888, got {text!r}"
        raise DoctorOptionError(f"--url: {wanted}")
    return text.rstrip("/")


def _own_page(url: str, settings: Settings) -> Page:
    """Return what the service says of itself, or that it says nothing."""
    try:
        return read_page(url)
    except _NoPageError as error:
        facts = empty_facts(settings)
        unchecked = Unchecked("all that the service checks itself", "see above")
        return Page((error.finding,), (unchecked,), facts)


def read_page(url: str) -> Page:
    """Return the page of a service; raise `_NoPageError` for one that has none."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS)
    try:
        connection.connect()
        connection.sock.settimeout(PAGE_SECONDS)
        connection.request("GET", f"{parts.path}{DOCTOR_PATH}")
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise _NoPageError(_silent(url, error)) from error
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise _NoPageError(_refusing(url, status))
    try:
        return msgspec.json.decode(body, type=Page)
    except msgspec.MsgspecError as error:
        raise _NoPageError(_other_version(url, f"its page differs: {error}")) from error


def _silent(url: str, error: Exception) -> Finding:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Finding(
        SERVICE,
        f"gpu-extender does not answer on {url}: {said.lower()}.",
        "If it does not run, kube-scheduler places no GPU pod, and the API server"
        " refuses them.",
        "Look at the log of its process. The verbs listen on loopback: run this beside"
        " it, or forward a port and name it with --url.",
    )


def _refusing(url: str, status: int) -> Finding:
    if status == HTTPStatus.NOT_FOUND:
        return _other_version(url, "it has no /doctor")
    why = "Nothing that the service knows of itself is in this report."
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return Finding(
            SERVICE,
            f"gpu-extender on {url} is busy with other requests for /cluster and"
            " /doctor, or about to stop.",
            why,
            "Try again in a moment.",
        )
    return Finding(
        SERVICE,
        f"gpu-extender on {url} answers {status} for {DOCTOR_PATH}.",
        why,
        "Look at the log of its process.",
    )


def _other_version(url: str, how: str) -> Finding:
    return Finding(
        SERVICE,
        f"What answers on {url} is no gpu-extender of this command's version"
        f" {version('gpu-extender')}: {how}.",
        "Nothing that the service knows of itself is in this report.",
        "Use the command of the service's version, or update the service.",
    )


def render(page: Page, output: str) -> str:
    """Return a page as text or as JSON."""
    if output == "json":
        return msgspec.json.format(msgspec.json.encode(page)).decode() + "\n"
    lines = [_headline(page)]
    for number, finding in enumerate(page.findings, 1):
        lines += ["", *_wrapped(f"{number}. ", f"{finding.check}: {finding.what}")]
        lines += [*_wrapped("   ", finding.why), *_wrapped("   ", finding.do)]
    if page.unchecked:
        lines += ["", "Not checked:"]
        for item in page.unchecked:
            lines += _wrapped("- ", f"{item.check}: {item.why}")
    if page.facts.version:
        lines += ["", *_wrapped("", _seen(page.facts))]
    return "\n".join(lines) + "\n"


def _seen(facts: Facts) -> str:
    """Return a line on what the service has seen."""
    parts = [f"{facts.nodes} nodes", f"{facts.filter_calls} filter calls"]
    if facts.nodes_offered:
        share = ""
        if facts.nodes >= facts.nodes_offered:
            share = f" ({100 * facts.nodes_offered // facts.nodes} %)"
        parts.append(f"up to {facts.nodes_offered} nodes{share} in one of the last")
    bound = f"{facts.called_bindings} GPU pods bound after a call"
    parts.append(f"{bound}, {facts.uncalled_bindings} without")
    if facts.certificate:
        ends = read_chain(facts.certificate)[0].not_valid_after_utc.timestamp()
        parts.append(f"certificate until {day(ends)}")
    if facts.token_ends_seconds is not None:
        parts.append(f"token until {day(facts.token_ends_seconds)}")
    return f"gpu-extender {facts.version} on {facts.hostname}: {'; '.join(parts)}."


def _headline(page: Page) -> str:
    count = len(page.findings)
    if not count:
        return "No fault found."
    return f"{count} fault{'s' if count > 1 else ''} found."


def _wrapped(mark: str, text: str) -> Iterable[str]:
    indent = " " * len(mark)
    return textwrap.wrap(
        _printable(text),
        WIDTH,
        initial_indent=mark,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _printable(text: Any) -> str:
    """Return a text without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in str(text))
