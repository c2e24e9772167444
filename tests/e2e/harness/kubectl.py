"""The real kubectl with the identity of one kubeconfig."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.harness.builders import JsonObject

TIMEOUT_SECONDS: Final = 120.0


class KubectlError(RuntimeError):
    """kubectl ended with an error."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl; what it has discovered is cached in the run's own folder."""

    binary: Path
    kubeconfig: Path
    cache: Path

    def run(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return exit code, output and error output."""
        return subprocess.run(
            [
                self.binary,
                f"--kubeconfig={self.kubeconfig}",
                f"--cache-dir={self.cache}",
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
            # A user's own preferences must not change what a test sees.
            env={**os.environ, "KUBERC": "off", "HOME": str(self.cache)},
        )

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output; an error of it is an error here."""
        done = self.run(*arguments, stdin=stdin)
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise KubectlError(f"kubectl {' '.join(arguments)}: {said}")
        return done.stdout

    def json(self, *arguments: str, stdin: str | None = None) -> JsonObject:
        """Run kubectl with `-o json` and return the decoded output."""
        answer: JsonObject = json.loads(self(*arguments, "-o", "json", stdin=stdin))
        return answer
