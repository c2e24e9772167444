"""``gpu-extender explain`` as a process of its own, at the ends of a pipe."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.builders import make_pod

DEMO: Final = Path(__file__).parents[2] / "configs" / "demo-cluster.yaml"
COMMAND: Final = [
    sys.executable, "-m", "service", "explain", "-f", "-", "--cluster", str(DEMO),
]  # fmt: skip


def test_a_pod_is_read_from_the_standard_input() -> None:
    done = subprocess.run(  # noqa: S603 - our own command
        COMMAND,
        input=json.dumps(make_pod(gpus=1)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "\ndefault/pod-1 asks 1 nvidia.com/gpu; " in done.stdout


def test_a_reader_that_has_gone_is_no_failure() -> None:
    with subprocess.Popen(  # noqa: S603 - our own command
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(json.dumps(make_pod(gpus=1)).encode())
        process.stdin.close()
        complaint = process.stderr.read()

    assert (process.returncode, complaint) == (0, b"")
