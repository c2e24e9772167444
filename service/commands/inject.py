"""``gpu-extender inject``: pods as the webhook would change them, without a cluster."""

import base64
import json
import sys
import textwrap
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import jsonpatch
import msgspec
import yaml

from cluster.ledger.writer import SnapshotCell
from extender.explain.table import WIDTH, printable
from injector.admission import Admission
from injector.fallback.choice import FallbackOutcome
from injector.review import decode_review, encode_answer
from injector.steps import AdmissionOutcome, AdmissionReason
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    attempt,
    folder_of,
    read_cluster,
    read_manifests,
    read_or_default,
    with_dumps,
    write_quietly,
)
from service.settings.settings import Settings
from service.submission import Submission, build_review, read_submissions
from service.webhook import Webhook

EXIT_REFUSED: Final = 1


@dataclass(frozen=True, slots=True)
class InjectOptions:
    """Options of the command line.

    Attributes
    ----------
    pods : sequence of Path
        Manifests; ``-`` for the standard input.
    rules : Path or None
        Rule file; else the one that the configuration names.
    dumps : sequence of Path
        Where the cluster is read from; else a cluster from files that the
        configuration names. Without either, nothing falls back.
    config : Path or None
        Without it, all settings have their defaults.
    namespace : str
        Of pods that name none; empty for ``default``.
    output : str
        ``yaml``, ``json`` or ``patch``.
    """

    pods: Sequence[Path]
    rules: Path | None
    dumps: Sequence[Path]
    config: Path | None
    namespace: str
    output: str


@dataclass(slots=True)
class Notes:
    """Keeps what an admission tells its observer about one pod."""

    lines: list[str] = field(default_factory=list)

    def observe_admission(
        self, outcome: AdmissionOutcome, reason: AdmissionReason
    ) -> None:
        """Note what became of the pod."""
        # What skips the rules may well have changed the pod: fallback, node affinity.
        what = "no injection" if outcome is AdmissionOutcome.SKIPPED else outcome.value
        self.lines.append(f"{what} ({reason.value})")

    def observe_fallback(self, outcome: str) -> None:
        """Note what the fallback did, if it was asked."""
        if outcome != FallbackOutcome.NOT_ASKED:
            self.lines.append(f"fallback {outcome}")

    def take(self) -> str:
        """Return what was noted since the last call."""
        said = ", ".join(self.lines)
        self.lines.clear()
        return said


def inject_pods(options: InjectOptions) -> int:
    """Print each pod as it would be admitted; return the exit status."""
    messages: list[str] = []
    settings = attempt(partial(read_or_default, options.config), messages)
    settings = _with_files(settings or Settings(), options)
    cell, notes = SnapshotCell(), Notes()
    if settings.cluster.source == "file":
        snapshot = attempt(partial(read_cluster, settings, options.config), messages)
        if snapshot is not None:
            cell.publish(snapshot)
    webhook = Webhook(cell, settings, notes, folder_of(options.config))
    if webhook.rules_path is None and not settings.fallback.chains:
        wanted = "--rules, injection.rulesFile or fallback.chains"
        messages.append(f"rules: wanted {wanted}, got none")
    attempt(webhook.load_rules, messages)
    read = partial(read_submissions, namespace=options.namespace)
    pods = attempt(partial(read_manifests, options.pods, read), messages)
    if messages or pods is None:
        sys.stderr.write("\n".join(messages) + "\n")
        return EXIT_FAULTY_INPUT
    reviewed = [review_pod(webhook.admission, item, notes) for item in pods]
    write_quietly(_rendered(reviewed, options.output))
    return 0 if all(reviewed) else EXIT_REFUSED


def _with_files(settings: Settings, options: InjectOptions) -> Settings:
    """Return the settings with the files that the command line names."""
    if options.dumps:
        settings = with_dumps(settings, options.dumps)
    if options.rules is None:
        return settings
    rules = {"rules_file": str(options.rules.resolve())}
    injection = settings.injection.model_copy(update=rules)
    return settings.model_copy(update={"injection": injection})


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod that was admitted.

    Attributes
    ----------
    pod : dict
        As the API server would store it.
    operations : list of dict
        The patch that made it so.
    """

    pod: dict[str, Any]
    operations: list[dict[str, Any]]


def review_pod(
    admission: Admission, submission: Submission, notes: Notes
) -> Admitted | None:
    """Have one pod reviewed and say on stderr what a user would be told.

    None if it is refused.
    """
    # One of its own each time, as from the API server: by it pods are told apart that
    # have yet to be named.
    uid = str(uuid.uuid4())
    review = decode_review(build_review(submission.pod, submission.namespace, uid))
    answer = msgspec.json.decode(encode_answer(review, admission.decide(review)))
    response, noted = answer["response"], notes.take()
    for warning in response.get("warnings", ()):
        _tell(f"Warning: pod {submission.label}: {warning}")
    if not response["allowed"]:
        _tell(response["status"]["message"])
        return None
    _tell(f"pod {submission.label}: {noted}")
    operations = json.loads(base64.b64decode(response.get("patch", "")) or "[]")
    return Admitted(jsonpatch.apply_patch(submission.pod, operations), operations)


def _tell(text: str) -> None:
    """Write to the standard error in lines of an explanation's width."""
    lines = textwrap.wrap(
        printable(text),
        WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _rendered(reviewed: Sequence[Admitted | None], output: str) -> str:
    """Return the pods as YAML documents or JSON, or one patch on each line.

    Of a pod that is refused the line is ``null``: there is a line for each pod.
    """
    if output == "patch":
        patches = [None if item is None else item.operations for item in reviewed]
        return "".join(
            json.dumps(patch, separators=(",", ":")) + "\n" for patch in patches
        )
    pods = [item.pod for item in reviewed if item is not None]
    if output == "yaml":
        return yaml.safe_dump_all(pods, sort_keys=False, allow_unicode=True)
    shown: Any = pods[0] if len(pods) == 1 else pods
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n" if pods else ""
