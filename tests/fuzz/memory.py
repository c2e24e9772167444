"""How much memory the process has."""

import resource
import sys
from pathlib import Path
from typing import Final

STATM: Final = Path("/proc/self/statm")


def resident_mebibytes() -> float:
    """Return what is resident now; where that is not told, the most that ever was."""
    if STATM.exists():
        pages = int(STATM.read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
