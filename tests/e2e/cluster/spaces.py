"""Network namespaces of a cluster: one for the control plane, one for each pod.

The process moves into a namespace of its own first, so all of them end with it. They
are joined by a bridge with addresses of 192.0.2.0/24.
"""

import ctypes
import ipaddress
import itertools
import os
import shutil
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NETWORK: Final = ipaddress.ip_network("192.0.2.0/24")
HUB: Final = str(NETWORK[1])
NAMESPACES: Final = Path("/run/netns")
BRIDGE: Final = "pods"
NEW_MOUNTS: Final = 0x00020000
NEW_NETWORK: Final = 0x40000000


class SpaceError(RuntimeError):
    """This machine does not allow a network namespace, or lacks what it takes."""


@dataclass(frozen=True, slots=True)
class Space:
    """A network namespace with an address.

    Attributes
    ----------
    name : str
        Empty for that of the control plane.
    address : str
    """

    name: str
    address: str

    @property
    def file(self) -> str:
        """By which a process enters it; empty for that of the control plane."""
        return str(NAMESPACES / self.name) if self.name else ""

    @property
    def prefix(self) -> list[str]:
        """What begins the command of a process that is to run in it."""
        return ["nsenter", f"--net={self.file}"] if self.name else []


def find_obstacle() -> str:
    """Return why this machine cannot run a cluster, in a sentence; empty if it can."""
    if os.geteuid() != 0:
        return (
            "A cluster has to run as root, who may make network namespaces and give"
            " pods files and users of their own: use sudo, a virtual machine, or a"
            " container with --privileged."
        )
    for command in ("ip", "mount", "nsenter", "unshare"):
        if shutil.which(command) is None:
            return (
                f"A cluster takes the command {command}, which this machine lacks:"
                " install iproute2 and util-linux."
            )
    add = ("ip", "link", "add", BRIDGE, "type", "bridge")
    tried = ["unshare", "--net", "--mount", *add]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return (
            "A cluster takes network namespaces and a bridge, and this machine gives"
            f" root none ({done.stderr.strip()}): use a virtual machine, or a container"
            " with --privileged."
        )
    return ""


def enter_own_namespaces() -> None:
    """Move this process into a network of its own; call it before any thread starts."""
    obstacle = find_obstacle()
    if obstacle:
        raise SpaceError(obstacle)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS | NEW_NETWORK) != 0:
        raise SpaceError(f"unshare: {os.strerror(ctypes.get_errno())}")
    NAMESPACES.mkdir(parents=True, exist_ok=True)
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "namespaces", str(NAMESPACES))
    _ip("link set lo up")
    _ip(f"link add {BRIDGE} type bridge")
    _ip(f"addr add {HUB}/{NETWORK.prefixlen} dev {BRIDGE}")
    _ip(f"link set {BRIDGE} up")


class Spaces:
    """Gives out namespaces with an address each, from any thread."""

    def __init__(self) -> None:
        self.hub = Space("", HUB)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._free = [str(address) for address in NETWORK.hosts()][1:]

    def make(self) -> Space:
        """Return a new one, joined to the others."""
        with self._lock:
            number, address = next(self._numbers), self._free.pop(0)
        space = Space(f"space-{number}", address)
        _ip(f"netns add {space.name}")
        _ip(f"link add link-{number} type veth peer name eth0 netns {space.name}")
        _ip(f"link set link-{number} master {BRIDGE} up")
        within = f"-n {space.name}"
        _ip(f"{within} addr add {address}/{NETWORK.prefixlen} dev eth0")
        _ip(f"{within} link set lo up")
        _ip(f"{within} link set eth0 up")
        _ip(f"{within} route add default via {HUB}")
        return space

    def give_back(self, space: Space) -> None:
        """End one whose processes have ended; its address is used again, last."""
        _ip(f"netns delete {space.name}")
        with self._lock:
            self._free.append(space.address)

    def add_service_address(self, address: str) -> None:
        """Have the control plane's namespace answer for an address."""
        _ip(f"addr replace {address}/32 dev lo")

    def drop_service_address(self, address: str) -> None:
        """Take it away again."""
        _ip(f"addr delete {address}/32 dev lo")


def _ip(arguments: str) -> None:
    _run("ip", *arguments.split())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SpaceError(f"{' '.join(command)}: {done.stderr.strip()}")


def connect(
    address: tuple[str, int], timeout: float, space: Space | None = None
) -> socket.socket:
    """Return a connection that is made from within a namespace, by default the hub."""
    if space is None or not space.name:
        return socket.create_connection(address, timeout)
    found = make_socket(space.file)
    found.settimeout(timeout)
    try:
        found.connect(address)
    except OSError:
        found.close()
        raise
    return found


def make_socket(network: str) -> socket.socket:
    """Return a TCP socket of the network namespace that a file of the system names."""
    libc = ctypes.CDLL(None, use_errno=True)
    # The thread's alone: no other notices.
    with (
        Path("/proc/thread-self/ns/net").open("rb") as home,
        Path(network).open("rb") as there,
    ):
        if libc.setns(there.fileno(), NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"setns {network}")
        try:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        finally:
            libc.setns(home.fileno(), NEW_NETWORK)
