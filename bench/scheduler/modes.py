"""What kube-scheduler works with in a run, and its configuration for that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import yaml

from bench.processes import ROOT

CONFIG: Final = ROOT / "deploy" / "scheduler-config.yaml"


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run kube-scheduler.

    Attributes
    ----------
    name : str
    extender : {"none", "noop", "ours"}
        Which process answers the verbs.
    settings : mapping
        Sections of our configuration file that make the mode.
    """

    name: str
    extender: Literal["none", "noop", "ours"]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _shortlist(length: int) -> dict[str, dict[str, Any]]:
    # `minMax` would stretch the few totals of a shortlist to the whole range.
    return {"scoring": {"shortlist": length, "normalize": "rank"}}


PLAIN: Final = Mode("plain", "none")
NOOP: Final = Mode("noop", "noop")
FULL: Final = Mode("full", "ours")
SHORTLIST: Final = Mode("shortlist", "ours", _shortlist(32))
ONE: Final = Mode("one", "ours", _shortlist(1))
MODES: Final = {mode.name: mode for mode in (PLAIN, NOOP, FULL, SHORTLIST, ONE)}


def in_turn(modes: list[Mode], number: int) -> list[Mode]:
    """Return the order of a round: each mode comes first as often as any other.

    >>> [mode.name for mode in in_turn([PLAIN, NOOP, FULL], 1)]
    ['noop', 'full', 'plain']
    """
    start = number % len(modes)
    return [*modes[start:], *modes[:start]]


def scheduler_config(mode: Mode) -> dict[str, Any]:
    """Return kube-scheduler's configuration: what ships, without us if need be."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    if mode.extender == "none":
        del config["extenders"]
    return config


def our_settings(mode: Mode, port: int, kubeconfig: str) -> dict[str, Any]:
    """Return our configuration: what a mode needs, and defaults."""
    return {
        "server": {"host": "127.0.0.1", "port": port, "drainSeconds": 0},
        "cluster": {"source": "kubernetes", "kubeconfig": kubeconfig},
        **mode.settings,
    }
