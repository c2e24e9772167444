"""Addresses and calls to try, for whoever has just started the demo."""

from pathlib import Path

from service.frame import FILTER_PATH, MUTATE_PATH, PREEMPT_PATH, PRIORITIZE_PATH

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
