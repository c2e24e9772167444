"""Who calls the API server: users of its token file, and their kubeconfigs."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class User:
    """An identity with a token of its own for one run."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


@dataclass(frozen=True, slots=True)
class Users:
    """The identities of a control plane."""

    harness: User = field(default_factory=lambda: User("harness", ("system:masters",)))
    # RBAC's own roles and bindings give this name what a scheduler needs.
    scheduler: User = field(default_factory=lambda: User("system:kube-scheduler"))
    # Its controllers would each want a service account; who they are proves nothing.
    controller_manager: User = field(
        default_factory=lambda: User("controller-manager", ("system:masters",))
    )
    # May nothing until a test binds a role to it.
    service: User = field(default_factory=lambda: User("gpu-extender"))

    def all(self) -> tuple[User, ...]:
        """Return every user."""
        return (self.harness, self.scheduler, self.controller_manager, self.service)


def write_token_file(path: Path, users: Iterable[User]) -> Path:
    """Write what the API server's `--token-auth-file` reads."""
    path.touch(mode=0o600)
    lines = (f'{u.token},{u.name},{u.name},"{",".join(u.groups)}"\n' for u in users)
    path.write_text("".join(lines))
    return path


def write_kubeconfig(path: Path, *, server: str, ca_file: Path, token: str) -> Path:
    """Write a kubeconfig of one cluster and one user."""
    name = "e2e"
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    context = {"cluster": name, "user": name}
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": cluster}],
                "users": [{"name": name, "user": {"token": token}}],
                "contexts": [{"name": name, "context": context}],
                "current-context": name,
            }
        )
    )
    return path
