"""Run a cluster until Ctrl-C: `python -m tests.e2e.cluster`, or `make cluster`."""

import argparse
import fcntl
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.e2e import build
from tests.e2e.cluster.cluster import Cluster, commands_for_people, link_commands
from tests.e2e.cluster.images import Images
from tests.e2e.cluster.nodes import NodesError, read_nodes
from tests.e2e.cluster.spaces import SpaceError, enter_own_namespaces
from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.service import REPOSITORY

TREE: Final = REPOSITORY / "build" / "image-tree"
FOLDER: Final = REPOSITORY / "build" / "cluster"
NODES: Final = REPOSITORY / "configs" / "demo-cluster.yaml"
MARK: Final = ".cluster"

UP: Final = """\
Kubernetes {minor} with {nodes} nodes is up; Ctrl-C ends it.
In another terminal:

    export PATH={bin}:$PATH KUBECONFIG={kubeconfig}
    kubectl get nodes
    helm install gpu-extender {chart} -n gpu-extender --create-namespace \\
      --set image.repository=here/gpu-extender --wait

Pods of gpu-extender and kube-scheduler have processes, those of others do nothing.
Logs, process ids and files of pods are in {folder}.
"""


class UsageError(RuntimeError):
    """What was asked for cannot be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        run(options)
    except (UsageError, NodesError, SpaceError, build.BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    minor = options.minor or build.chosen_minor()
    binaries = build.locate(minor)
    read_nodes(options.nodes)
    tree = options.image_tree.resolve()
    if not (tree / "opt" / "gpu-extender").is_dir():
        raise UsageError(f"{tree}: wanted the image's files: run make image-tree")
    folder = _claim(options.folder)
    # Of the machine's network: those who come by it are led into the cluster's.
    listener = socket.create_server((LOOPBACK, options.port))
    enter_own_namespaces()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with (
        Reaper() as reaper,
        Cluster(
            binaries,
            images=Images(tree, binaries["kube-scheduler"], options.source),
            folder=folder,
            nodes=options.nodes,
            control_planes=options.control_planes,
            routes_to_pods=options.aggregator_routing,
            reaper=reaper,
        ) as cluster,
    ):
        cluster.services.forward(listener, (LOOPBACK, cluster.plane.ports.api_server))
        found = commands_for_people(binaries, _helms(), _kubectl_gpu())
        said = {
            "minor": minor,
            "nodes": cluster.nodes,
            "bin": link_commands(folder / "bin", found),
            "kubeconfig": cluster.write_kubeconfig(listener.getsockname()[1]),
            "chart": Path(os.path.relpath(REPOSITORY / "deploy" / "chart")),
            "folder": folder,
        }
        _tell(folder, said)
        threading.Thread(target=cluster.watch_schedulers, daemon=True).start()
        stopped.wait()


def _tell(folder: Path, said: Mapping[str, object]) -> None:
    sys.stdout.write(UP.format(**said))
    sys.stdout.flush()
    (folder / "ready").touch()  # for those who cannot read it


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.cluster", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--minor", choices=build.minors(), help="default: K8S, then 1.36"
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        default=NODES,
        help="nodes as `kubectl get nodes -o yaml` prints them",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--image-tree", type=Path, default=TREE)
    parser.add_argument(
        "--source",
        type=Path,
        help="a checkout whose packages are used in place of the image's",
    )
    parser.add_argument("--port", type=int, default=0, help="of the API server")
    parser.add_argument("--control-planes", type=int, default=1)
    parser.add_argument(
        "--aggregator-routing",
        action="store_true",
        help="have the API server call pods behind a Service by their own addresses",
    )
    return parser


def _claim(folder: Path) -> Path:
    """Return a folder emptied of an earlier cluster, for this process alone."""
    folder = folder.resolve()
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise UsageError(
            f"{folder}: wanted a folder of a cluster or none, got others' files"
        )
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(mark, os.O_RDWR | os.O_CREAT, 0o600)  # held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UsageError(
            f"{folder}: a cluster runs there; end it, or name another"
        ) from None
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()
    return folder


def _helms() -> Sequence[Path]:
    paths = (build.CACHE / name / "bin" / name for name in build.HELMS)
    return [path for path in paths if path.is_file()]


def _kubectl_gpu() -> Path:
    return REPOSITORY / "deploy" / "kubectl" / "kubectl-gpu"


if __name__ == "__main__":
    sys.exit(main())
