"""``make explore``: property tests with new random histories, seed after seed."""

import argparse
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
# A pass that has found something is not broken off at once: Hypothesis shortens a
# history for up to five minutes before it prints it.
LATEST_SECONDS: Final = 400.0
PYTEST: Final = (
    *("-m", "pytest", "-q", "-m", "hypothesis", "-p", "no:cacheprovider"),
    "--hypothesis-profile=explore",
)
ADVICE: Final = """
To see a history again, from the same commit:

    .venv/bin/python {command} --hypothesis-seed=SEED

To keep it, write a test of its own with what is printed under "Failing test case":
the arguments as @example(...) above the property or, where a random number generator
is among them, as a row of test_what_is_served_is_trusted_in_a_history_that_was_found,
whose draws are those printed. It lands with the change that mends the fault or, until
then, as xfail(strict=True) with its reason.
"""


def say(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def explore(seed: int, timeout_seconds: float, chosen: Sequence[str]) -> int | None:
    """Run all property tests with one seed; return the status, None if cut off."""
    command = [sys.executable, *PYTEST, "-n", "auto", f"--hypothesis-seed={seed}"]
    process = subprocess.Popen(  # noqa: S603  our own tests
        [*command, *chosen],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
        say(f"seed {seed}: cut off\n{output}")
        return None
    if process.returncode:
        say(output)
    say(f"seed {seed}: {output.rstrip().rpartition(chr(10))[2]}")
    return process.returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Run passes until the time is over; return 1 if one has found something."""
    parser = argparse.ArgumentParser(prog="tests.explore", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or folders")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.seconds
    seeds: list[int] = []
    failed: list[int] = []
    while not seeds or time.monotonic() < end:
        seed = secrets.randbelow(2**32)
        seeds.append(seed)
        left = max(end - time.monotonic(), 0.0) + LATEST_SECONDS
        status = explore(seed, left, options.tests)
        if status in (2, 3, 4, 5):  # interrupted, broken, misused, nothing to run
            return status
        if status != 0:
            failed.append(seed)
    say(f"\n{len(seeds)} seeds, {len(failed)} found something: {failed}")
    if failed:
        say(ADVICE.format(command=" ".join(PYTEST)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
