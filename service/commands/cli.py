"""Entry point and options. The environment is read here only."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Final

from scoring.profiles import PROFILES
from service.commands.check_config import check_config
from service.commands.doctor import DoctorOptions, run_doctor
from service.commands.explain import ExplainOptions, explain_pods
from service.commands.inject import InjectOptions, inject_pods
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    EXIT_NOT_REACHED,
    NoClusterError,
)
from service.commands.scheduler_config import print_scheduler_config
from service.commands.simulate import (
    DEFAULT_ARRIVED,
    DEFAULT_LIST,
    SimulateOptions,
    simulate_pods,
)
from service.commands.webhook_config import WebhookConfigOptions, print_webhook_config
from service.http.middleware import (
    FILTER_PATH,
    MUTATE_PATH,
    PREEMPT_PATH,
    PRIORITIZE_PATH,
)
from service.http.plain import ListenError
from service.lease import read_own_pod
from service.logs import configure_command_logs, configure_logs
from service.runtime import Runtime
from service.settings.settings import SettingsError, read_settings

CALLS = (
    ("filter", FILTER_PATH),
    ("prioritize", PRIORITIZE_PATH),
    ("preempt", PREEMPT_PATH),
    ("mutate", MUTATE_PATH),
)

PAGES = (
    "/healthz",
    "/readyz",
    "/readyz/extender",
    "/livez/extender",
    "/metrics",
    "/cluster",
    "/doctor",
)

# A pod of the demo cluster that is pending.
EXPLAIN = "/explain?namespace=research&pod=huge-0"


def example_calls(base: str, folder: Path) -> str:
    """Return what ``serve --examples`` prints.

    Parameters
    ----------
    base : str
        Scheme, address and port of the service.
    folder : Path
        Where the bodies of `CALLS` lie, such as ``filter.json``.
    """
    lines = [f"gpu-extender serves on {base}", ""]
    lines += [f"  {base}{page}" for page in PAGES]
    lines += ["", "Try, from another terminal in this folder:", ""]
    lines += [
        f"  curl -s -d @{folder / name}.json {base}{path}" for name, path in CALLS
    ]
    lines.append(f"  curl -s '{base}{EXPLAIN}'")
    return "\n".join(lines) + "\n\nCtrl-C stops it.\n"


EXIT_CANNOT_SERVE = 1

MAX_PORT: Final = 65_535

MAX_DIGITS: Final = 9

MAX_WHOLE: Final = 10**MAX_DIGITS - 1

MAX_PERCENTAGE: Final = 100


def _port(text: str) -> int:
    """Return a port of the command line."""
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"wanted a port from 0 to 65535, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    """Return a number of rows of the command line."""
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise argparse.ArgumentTypeError(f"wanted a number from 1, got {text!r}")
    return int(text)


def _whole(text: str) -> int:
    """Return a whole number of the command line, from 0."""
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
        raise argparse.ArgumentTypeError(
            f"wanted a number from 0 to {MAX_WHOLE}, got {text!r}"
        )
    return int(text)


def _percentage(text: str) -> int:
    """Return a percentage of the command line."""
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_PERCENTAGE:
        raise argparse.ArgumentTypeError(f"wanted a number up to 100, got {text!r}")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="gpu-extender",
        description="kube-scheduler extender and admission webhook for GPU pods",
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('gpu-extender')}"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the service")
    serve.add_argument("--config", type=Path, required=True, help="configuration file")
    serve.add_argument(
        "--port",
        type=_port,
        help="port of the HTTP listener, in place of server.port; 0 takes a free one",
    )
    serve.add_argument(
        "--examples",
        action="store_true",
        help="print addresses and calls to try once it serves",
    )
    scheduler = commands.add_parser(
        "scheduler-config", help="print a KubeSchedulerConfiguration for the cluster"
    )
    scheduler.add_argument(
        "--config", type=Path, required=True, help="configuration file"
    )
    scheduler.add_argument(
        "--scheduler-name",
        default="default-scheduler",
        help="name of the profile (default: %(default)s)",
    )
    scheduler.add_argument(
        "--url-prefix",
        help="where kube-scheduler reaches the verbs (default: server.host and port)",
    )
    scheduler.add_argument(
        "--scheduler-kubeconfig",
        help="path of kube-scheduler's own kubeconfig, such as"
        " /etc/kubernetes/scheduler.conf; needed unless it runs as a pod with a"
        " service account, since --config switches its option --kubeconfig off",
    )
    scheduler.add_argument(
        "--all-pods",
        action="store_true",
        help="have pods without GPUs sent, too, for the weight fragmentation; while"
        " gpu-extender is away, kube-scheduler then places no pod at all",
    )
    _add_webhook_config(commands)
    check = commands.add_parser(
        "check-config", help="print all faults of a configuration file"
    )
    check.add_argument("config", type=Path, help="configuration file")
    _add_doctor(commands)
    _add_explain(commands)
    _add_inject(commands)
    _add_simulate(commands)
    return parser


def _add_doctor(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add the subcommand that examines an installation."""
    doctor = commands.add_parser(
        "doctor",
        help="print what is wrong with an installation",
        description="Asks the service how it is, and looks at its registration,"
        " Service and Leases with the caller's own rights. Ends with 0 if no fault is"
        " found, 1 if one is, 2 for faulty input, 3 if the cluster is not reached.",
    )
    doctor.add_argument("--config", type=Path, help="configuration of the service")
    doctor.add_argument(
        "--url",
        help="where the service answers (default: as the configuration says,"
        " http://127.0.0.1:8888 without one)",
    )
    doctor.add_argument(
        "--kubeconfig", type=Path, help="the caller's (default: as kubectl's)"
    )
    doctor.add_argument("--context", help="of the kubeconfig")
    doctor.add_argument(
        "--scheduler-config",
        type=Path,
        help="KubeSchedulerConfiguration that kube-scheduler is started with",
    )
    doctor.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="form"
    )


def _add_webhook_config(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add the subcommand that prints the webhook's registration."""
    webhook = commands.add_parser(
        "webhook-config", help="print the MutatingWebhookConfiguration to apply"
    )
    webhook.add_argument(
        "--config", type=Path, help="configuration file (default: all defaults)"
    )
    address = webhook.add_mutually_exclusive_group()
    address.add_argument(
        "--service",
        metavar="NAMESPACE/NAME",
        help="Service that leads to the webhook (default: that of"
        " webhook.selfSigned.dnsNames, which is gpu-extender/gpu-extender)",
    )
    address.add_argument(
        "--url", help="address of the webhook where there is no Service"
    )
    webhook.add_argument(
        "--ca-file",
        type=Path,
        help="PEM file with the CA that signed webhook.certificateFile, for caBundle;"
        " not for certificates of our own or cert-manager's",
    )


def _add_explain(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add the subcommand that explains pods."""
    explain = commands.add_parser(
        "explain",
        help="print why a pod would go where, or nowhere",
        description="Says whether the pods of a manifest would find a node, as the"
        " webhook of the configuration would admit them, why not, and what would help."
        " Ends with 0 if every pod fits a node, 1 if one does not, 2 for faulty input,"
        " 3 if the cluster is not reached.",
    )
    explain.add_argument(
        "-f",
        "--filename",
        type=Path,
        action="append",
        required=True,
        help="pods, or what has a template of pods, as YAML or JSON; - reads stdin",
    )
    source = explain.add_mutually_exclusive_group()
    source.add_argument(
        "--cluster",
        type=Path,
        nargs="+",
        default=[],
        help="dumps as kubectl get nodes,pods -A -o yaml (or json) prints them",
    )
    source.add_argument(
        "--kubeconfig", type=Path, help="reads the cluster from its API server"
    )
    explain.add_argument(
        "--config",
        type=Path,
        help="configuration file (default: all settings at their defaults)",
    )
    explain.add_argument(
        "--as-is",
        action="store_true",
        help="judge the pods as they are written, without the webhook's changes",
    )
    rows = explain.add_mutually_exclusive_group()
    rows.add_argument("--nodes", action="store_true", help="a row for each node, too")
    rows.add_argument("--node", metavar="NAME", default="", help="one node in full")
    explain.add_argument(
        "--limit", type=_count, metavar="N", help="rows at most, the best nodes first"
    )
    explain.add_argument(
        "-o",
        "--output",
        choices=["text", "wide", "json", "yaml"],
        default="text",
        help="form; wide has all columns of all nodes",
    )


def _add_inject(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add the subcommand that tries rules on pods."""
    inject = commands.add_parser(
        "inject",
        help="print pods as the webhook would change them",
        description="Reviews the pods of a manifest as the webhook would. Ends with 0"
        " if every pod is admitted, 1 if one is refused, 2 for faulty input.",
    )
    inject.add_argument(
        "-f",
        "--filename",
        type=Path,
        action="append",
        required=True,
        help="pods, or what has a template of pods, as YAML or JSON; - reads stdin",
    )
    inject.add_argument(
        "--rules",
        type=Path,
        help="rule file (default: injection.rulesFile of the configuration)",
    )
    inject.add_argument(
        "--cluster",
        type=Path,
        nargs="+",
        default=[],
        help="dumps as kubectl get nodes,pods -A -o yaml (or json) prints them; without"
        " a cluster nothing falls back",
    )
    inject.add_argument(
        "--config",
        type=Path,
        help="configuration file (default: all settings at their defaults)",
    )
    inject.add_argument(
        "-n", "--namespace", default="", help="of pods that name none (default)"
    )
    inject.add_argument(
        "-o",
        "--output",
        choices=["yaml", "json", "patch"],
        default="yaml",
        help="form; patch is the JSON patch, one line for each pod",
    )


def _add_simulate(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add the subcommand that replays a list of pods."""
    simulate = commands.add_parser(
        "simulate",
        help="print where pods would go, one after the other",
        description="Places pods one by one with the filter and the scores of the"
        " configuration and kube-scheduler's own rules. Ends with 0 if every pod of the"
        " manifests finds a node, 1 if one does not, 2 for faulty input.",
    )
    source = simulate.add_argument_group("what is placed where")
    source.add_argument(
        "--cluster",
        type=Path,
        nargs="+",
        default=[],
        help="dumps as kubectl get nodes,pods -A -o yaml (or json) prints them",
    )
    source.add_argument(
        "--pods",
        type=Path,
        nargs="+",
        default=[],
        help="pods, or what has a template of pods, as YAML or JSON, in the order in"
        " which they arrive; - reads stdin",
    )
    source.add_argument(
        "--trace", type=Path, help="folder of the public placement trace"
    )
    source.add_argument("--list", help=f"list of the trace (default: {DEFAULT_LIST})")
    source.add_argument(
        "--whole", action="store_true", help="each share of the trace is a whole GPU"
    )
    source.add_argument(
        "--arrived",
        type=_count,
        metavar="PERCENT",
        help="pods of the trace arrive until they ask for so many %% of the GPUs"
        f" (default: {DEFAULT_ARRIVED})",
    )
    simulate.add_argument(
        "--config",
        type=Path,
        help="configuration file (default: all settings at their defaults)",
    )
    simulate.add_argument(
        "--seed",
        type=_whole,
        default=42,
        help=f"of all lots, up to {MAX_WHOLE} (default: %(default)s)",
    )
    _add_scheduler_rules(simulate)
    simulate.add_argument(
        "--profile",
        nargs="+",
        default=[],
        choices=list(PROFILES),
        metavar="PROFILE",
        help="by these profiles, one after the other, in place of the configuration's:"
        f" {', '.join(PROFILES)}",
    )
    simulate.add_argument(
        "--known-mix",
        action="store_true",
        help="scores know beforehand which pods the list has, as FGD does; else they"
        " learn that from those that came",
    )
    simulate.add_argument(
        "--compare",
        action="store_true",
        help="the same with Random, BestFit and FGD in our place",
    )
    simulate.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="writes a picture (SVG) of what was allocated against what was asked for",
    )
    simulate.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="form"
    )


def _add_scheduler_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how kube-scheduler behaves."""
    rules = parser.add_argument_group("kube-scheduler")
    rules.add_argument(
        "--percentage",
        type=_percentage,
        default=0,
        help="percentageOfNodesToScore (default: 0, its own choice)",
    )
    rules.add_argument(
        "--ties",
        choices=["random", "name"],
        default="random",
        help="who wins among equals (default: %(default)s, as it does)",
    )
    rules.add_argument(
        "--no-score-plugins",
        action="store_true",
        help="without NodeResourcesFit and NodeResourcesBalancedAllocation",
    )
    rules.add_argument(
        "--lag",
        type=_whole,
        default=0,
        metavar="K",
        help="our cache does not show the last K placements yet",
    )
    rules.add_argument(
        "--gpu-choice",
        choices=["tightest", "first"],
        default="tightest",
        help="GPU that a share is taken of (default: %(default)s)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit status."""
    options = build_parser().parse_args(argv)
    if options.command == "serve":
        return serve(options.config, with_examples=options.examples, port=options.port)
    configure_command_logs()
    try:
        return _run_command(options)
    except NoClusterError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_NOT_REACHED


def _run_command(  # noqa: PLR0911 - one for each subcommand
    options: argparse.Namespace,
) -> int:
    """Run one subcommand that ends by itself and return the exit status."""
    if options.command == "scheduler-config":
        return print_scheduler_config(
            options.config,
            options.scheduler_name,
            options.url_prefix,
            options.scheduler_kubeconfig,
            sends_all=options.all_pods,
        )
    if options.command == "doctor":
        return run_doctor(
            DoctorOptions(
                options.config,
                options.url,
                options.kubeconfig,
                options.context,
                options.scheduler_config,
                options.output,
            )
        )
    if options.command == "webhook-config":
        return print_webhook_config(
            WebhookConfigOptions(
                options.config, options.service, options.url, options.ca_file
            )
        )
    if options.command == "explain":
        return explain_pods(
            ExplainOptions(
                options.filename,
                options.cluster,
                options.kubeconfig,
                options.config,
                options.output,
                is_as_is=options.as_is,
                has_nodes=options.nodes,
                node=options.node,
                limit=options.limit,
                is_without_colours=bool(os.environ.get("NO_COLOR")),
            )
        )
    if options.command == "inject":
        return inject_pods(
            InjectOptions(
                options.filename,
                options.rules,
                options.cluster,
                options.config,
                options.namespace,
                options.output,
            )
        )
    if options.command == "simulate":
        return simulate_pods(
            SimulateOptions(
                trace=options.trace,
                dumps=options.cluster,
                pods=options.pods,
                config=options.config,
                pod_list=options.list,
                has_whole_gpus=options.whole,
                arrived=options.arrived,
                seed=options.seed,
                percentage=options.percentage,
                ties=options.ties,
                has_plugins=not options.no_score_plugins,
                profiles=options.profile,
                is_mix_known=options.known_mix,
                lag=options.lag,
                gpu_choice=options.gpu_choice,
                is_comparing=options.compare,
                plot=options.plot,
                output=options.output,
            )
        )
    return check_config(options.config)


def serve(config: Path, *, with_examples: bool, port: int | None = None) -> int:
    """Run the service until SIGTERM or SIGINT; a second signal ends the drain.

    SIGHUP has the settings and all other files read again. Before anything is served,
    a signal ends the process at once, whatever a credential plugin does. A port goes
    before that of the configuration.
    """
    try:
        settings = read_settings(config)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAULTY_INPUT
    configure_logs(settings.logging.level)
    stop, hurry, reload_asked = (threading.Event() for _ in range(3))
    runtime: Runtime | None = None

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if runtime is None:
            raise SystemExit(0)
        if stop.is_set() or number == signal.SIGINT:
            hurry.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    signal.signal(signal.SIGHUP, lambda _number, _frame: reload_asked.set())
    try:
        runtime = Runtime(
            config, settings, port, read_own_pod(os.environ), reload_asked
        )
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAULTY_INPUT
    except ListenError as error:
        another = "server.port, webhook.port, or --port choose another"
        sys.stderr.write(f"{error}; {another}\n")
        return EXIT_CANNOT_SERVE
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CANNOT_SERVE
    runtime.start()
    if with_examples:
        base = settings.server.url(runtime.server.port)
        sys.stdout.write(example_calls(base, config.parent / "examples"))
        sys.stdout.flush()
    stop.wait()
    runtime.drain(hurry)
    return 0
