"""Free ports on loopback."""

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the range that Linux gives to outgoing connections (from 32768): the port of a
# process that was killed must still be free when it is started again.
LOWEST: Final = 20_000
HIGHEST: Final = 32_000
ATTEMPTS: Final = 200

_handed_out: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on, each one once in this process."""
    for _ in range(ATTEMPTS):
        # Several runs on one machine must not walk through the same sequence.
        port = random.SystemRandom().randint(LOWEST, HIGHEST)
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise RuntimeError(f"free port: tried {ATTEMPTS} ports, all were taken")
