"""First steps of a container's process: namespaces, files, user; then the command.

Run as a script with a file of JSON, so that nothing of ours stays in the process. Its
root is a tmpfs with what it is given bound into it, and goes with the process.
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

READ_ONLY, NO_SETUID, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
NEW_MOUNTS, NEW_NETWORK, NEW_NAME = 0x00020000, 0x40000000, 0x04000000
NO_NEW_PRIVILEGES = 38

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise what the system says went wrong."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: Path, kind: str, flags: int, data: str = "") -> None:
    """Mount as mount(2) does."""
    words = (source.encode(), bytes(target), kind.encode(), flags, data.encode())
    check(libc.mount(*words), f"mount {target}")


def bind(source: Path, target: Path, *, read_only: bool) -> None:
    """Show a file or folder at another place, too."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(source), target, "", BIND | RECURSIVE)
    if read_only:
        mount("", target, "", BIND | REMOUNT | READ_ONLY | NO_SETUID)


def build_root(root: Path, start: dict[str, Any]) -> None:
    """Put the container's files together."""
    mount("container", root, "tmpfs", 0, "mode=755,size=64m")
    for name, target in start["links"].items():
        (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / name.lstrip("/")).symlink_to(target)
    for name, text in start["files"].items():
        (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / name.lstrip("/")).write_text(text)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for source, target, read_only in start["binds"]:
        bind(Path(source), root / target.lstrip("/"), read_only=read_only)
    if start["readOnlyRoot"]:
        mount("", root, "", BIND | REMOUNT | READ_ONLY)


def main() -> None:
    """Become the container's process."""
    start = json.loads(Path(sys.argv[1]).read_text())
    if start["space"]:
        with Path(start["space"]).open("rb") as space:
            check(libc.setns(space.fileno(), NEW_NETWORK), "setns")
    check(libc.unshare(NEW_MOUNTS | NEW_NAME), "unshare")
    name = start["hostname"].encode()
    check(libc.sethostname(name, len(name)), "sethostname")
    mount("", Path("/"), "", PRIVATE | RECURSIVE)
    root = Path(start["root"])
    build_root(root, start)
    os.chroot(root)
    os.chdir(start["folder"])
    os.setgroups(start["groups"])
    os.setresgid(start["group"], start["group"], start["group"])
    os.setresuid(start["user"], start["user"], start["user"])
    if start["noNewPrivileges"]:
        check(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    os.umask(0o022)
    os.execvpe(start["command"][0], start["command"], start["environment"])  # noqa: S606


if __name__ == "__main__":
    main()
