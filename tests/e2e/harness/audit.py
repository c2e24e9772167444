"""Which calls the API server answered, and refused, from its audit log."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import yaml

# Only calls of identities with limited rights are written, when they are answered.
POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:masters"]},
        {
            "level": "None",
            "users": [
                "system:kube-scheduler",
                "system:apiserver",
                "system:anonymous",
            ],
        },
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True, slots=True)
class Call:
    """One answered call."""

    user: str
    verb: str
    uri: str
    status: int

    @property
    def is_refused(self) -> bool:
        """Whether the identity was not known or may not do this."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

    def is_of(self, name: str) -> bool:
        """Whether the caller was a user, or a service account, of that name."""
        return self.user.rpartition(":")[2] == name


def write_policy(path: Path) -> Path:
    """Write the API server's audit policy."""
    path.write_text(yaml.safe_dump(POLICY))
    return path


def read_calls(log: Path) -> Sequence[Call]:
    """Return the calls written so far; a line that is being written is left out."""
    if not log.exists():
        return ()
    lines = log.read_text(encoding="utf-8").split("\n")[:-1]
    return tuple(
        Call(
            user=event["user"].get("username", ""),  # none if the token is refused
            verb=event["verb"],
            uri=event["requestURI"],
            status=event.get("responseStatus", {}).get("code", 0),
        )
        for event in map(json.loads, lines)
    )
