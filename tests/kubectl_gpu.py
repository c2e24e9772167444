"""`kubectl gpu` as a module, a stand-in for kubectl, and one for a service."""

import http.server
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SCRIPT: Final = Path(__file__).parents[1] / "deploy" / "kubectl" / "kubectl-gpu"


def load_script() -> Any:
    """Return the script as a module, without leaving a compiled file beside it."""
    loader = importlib.machinery.SourceFileLoader("kubectl_gpu", str(SCRIPT))
    spec = importlib.util.spec_from_loader("kubectl_gpu", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.modules["kubectl_gpu"] = module
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = wrote
    return module


# Answers the first rule whose words all stand in the command line, and notes the call.
STAND_IN: Final = """#!{python} -IS
import json, os, sys, time
folder = {folder!r}
words = sys.argv[1:]
stdin = "" if "port-forward" in words or "-" not in words else sys.stdin.read()
with open(folder + "/calls", "a") as calls:
    calls.write(json.dumps([words, stdin]) + "\\n")
with open(folder + "/rules") as rules:
    for wanted, out, err, status in json.load(rules):
        if all(word in words for word in wanted):
            break
    else:
        out, err, status = "", "no rule for " + " ".join(words), 1
with open(folder + "/pid", "w") as pid:
    pid.write(str(os.getpid()))
sys.stdout.write(out)
sys.stdout.flush()
sys.stderr.write(err)
sys.stderr.flush()
if "port-forward" in words and not status:
    time.sleep(600)
sys.exit(status)
"""


@dataclass
class KubectlStandIn:
    """A command in place of kubectl.

    Attributes
    ----------
    rules : list
        Words of a command line, and what is written for it: standard output, standard
        error, exit status. The first that fits counts.
    """

    folder: Path
    rules: list[tuple[list[str], str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = STAND_IN.format(python=sys.executable, folder=str(self.folder))
        self.path.write_text(text)
        self.path.chmod(0o755)
        self._write()

    @property
    def path(self) -> Path:
        """The command."""
        return self.folder / "kubectl"

    def answer(
        self, words: str, tree: Any = "", err: str = "", status: int = 0
    ) -> None:
        """Answer a command line with these words, before what was said earlier."""
        out = tree if isinstance(tree, str) else json.dumps(tree)
        self.rules.insert(0, (words.split(), out, err, status))
        self._write()

    def refuse(self, words: str, err: str) -> None:
        """Fail for a command line with these words."""
        self.answer(words, err=err, status=1)

    def is_running(self) -> bool:
        """Whether the last command has not ended."""
        try:
            os.kill(int((self.folder / "pid").read_text()), 0)
        except ProcessLookupError:
            return False
        return True

    def calls(self) -> list[tuple[list[str], str]]:
        """Return the words and the standard input of each call."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def _write(self) -> None:
        (self.folder / "rules").write_text(json.dumps(self.rules))


# Status, headers and body of an answer to a path with its query and a body.
Reply = tuple[int, Mapping[str, str], bytes]


@contextmanager
def serving(reply: Callable[[str, bytes], Reply]) -> Iterator[str]:
    """Serve answers on a loopback port; yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, headers, body = reply(self.path, self.rfile.read(length))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the base class's names

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_replica(
    name: str,
    node: str = "host-1",
    *,
    phase: str = "Running",
    is_ready: bool = True,
    is_going: bool = False,
) -> dict[str, Any]:
    """Return a pod of gpu-extender."""
    metadata: dict[str, Any] = {"name": name, "namespace": "gpu-extender"}
    if is_going:
        metadata["deletionTimestamp"] = "2026-11-28T20:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    }
