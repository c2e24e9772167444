"""``make fuzz``: mutated bodies against the application for some minutes."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.fuzz.campaign import Campaign, HangError, Tally
from tests.fuzz.corpus import ROUTES
from tests.fuzz.memory import resident_mebibytes

WARM_UP_BODIES: Final = 20_000
ROUND_BODIES: Final = 5_000
HANG_SECONDS: Final = 10.0
MAX_SLOWEST_SECONDS: Final = 1.0
MAX_GROWTH_MEBIBYTES: Final = 16.0
MIN_BODIES_OF_TEN_MINUTES: Final = 500_000
MAX_SHOWN: Final = 20
MAX_SHOWN_LENGTH: Final = 3000


def say(line: str) -> None:
    """Print one line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(campaign: Campaign, seconds: float) -> tuple[float, float]:
    """Send bodies for so long; return what is resident at the start and at the end.

    The start is after a warm-up, when everything bounded has been filled.
    """
    campaign.fill()
    end = time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() >= end

    campaign.run(WARM_UP_BODIES, is_over)
    first = resident_mebibytes()
    while not is_over():
        campaign.run(ROUND_BODIES, is_over)
        tally = campaign.tally
        say(
            f"{tally.bodies:>9,} bodies  {tally.calls:>9,} calls"
            f"  {len(tally.violations)} violations"
            f"  slowest {tally.slowest_seconds * 1000:.1f} ms"
            f"  {resident_mebibytes():.1f} MiB"
        )
    return first, resident_mebibytes()


def report(tally: Tally, memory: tuple[float, float], seconds: float) -> bool:
    """Print what has come of it; return whether all bars are passed."""
    for violation in tally.violations[:MAX_SHOWN]:
        say(str(violation)[:MAX_SHOWN_LENGTH])
    say("")
    for route in ROUTES:
        counts = {s: c for (r, s), c in sorted(tally.statuses.items()) if r == route}
        say(f"{route:<22} {'  '.join(f'{s}: {c:,}' for s, c in counts.items())}")
    slowest = f"{len(tally.slowest_body):,} bytes in {tally.slowest_seconds:.4f} s"
    say(f"bodies {tally.bodies:,}, calls {tally.calls:,}, in {seconds:.0f} s")
    say(f"slowest call: {slowest}")
    say(f"resident: {memory[0]:.1f} MiB after the warm-up, {memory[1]:.1f} at the end")
    say("")
    wanted = int(MIN_BODIES_OF_TEN_MINUTES * seconds / 600)
    growth = memory[1] - memory[0]
    bars = [
        ("fuzz_bodies", tally.bodies, wanted, tally.bodies >= wanted),
        ("fuzz_violations", len(tally.violations), 0, not tally.violations),
        (
            "fuzz_slowest_seconds",
            round(tally.slowest_seconds, 4),
            MAX_SLOWEST_SECONDS,
            tally.slowest_seconds <= MAX_SLOWEST_SECONDS,
        ),
        (
            "fuzz_growth_mebibytes",
            round(growth, 1),
            MAX_GROWTH_MEBIBYTES,
            growth <= MAX_GROWTH_MEBIBYTES,
        ),
    ]
    for name, value, target, is_passed in bars:
        say(f"bar {name} {value} {target} {'pass' if is_passed else 'miss'}")
    return all(is_passed for *_, is_passed in bars)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--slowest", type=Path, help="file to write the slowest call's body to"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    say(f"seed {options.seed}")
    campaign = Campaign(options.seed, HANG_SECONDS)
    started = time.monotonic()
    try:
        memory = run(campaign, options.seconds)
    except HangError:
        say(f"hang: {campaign.tally.current!r}"[:MAX_SHOWN_LENGTH])
        return 1
    if options.slowest is not None:
        options.slowest.write_bytes(campaign.tally.slowest_body)
    is_passed = report(campaign.tally, memory, time.monotonic() - started)
    return 0 if is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
