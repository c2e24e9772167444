"""Free ports on loopback."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the range that Linux gives to outgoing connections (from 32768): the port of a
# process that was killed must still be free when it is started again.
LOWEST: Final = 20_000
HIGHEST: Final = 32_000
ATTEMPTS: Final = 200

# Of it, a run locks the byte of each port that it hands out, until it ends: what is to
# listen there may have to start yet, and another run must not take the port meanwhile.
LOCKS: Final = Path(tempfile.gettempdir()) / "gpu-extender-e2e-ports"

_handed_out: set[int] = set()
_locks = os.open(LOCKS, os.O_RDWR | os.O_CREAT, 0o600)


def free_port() -> int:
    """Return a port that nobody listens on, each one once of all runs here."""
    for _ in range(ATTEMPTS):
        # Several runs on one machine must not walk through the same sequence.
        port = random.SystemRandom().randint(LOWEST, HIGHEST)
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
                fcntl.lockf(_locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise RuntimeError(f"free port: tried {ATTEMPTS} ports, all were taken")
