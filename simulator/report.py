"""What a replay tells: figures of each policy, as text, JSON, or a picture."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from extender.explain import table
from scoring.snapshot import Snapshot
from simulator.pods import QueuedPod
from simulator.simulation import Outcome


class PlacementRow(msgspec.Struct, frozen=True):
    """Where a pod went; no node for one that was refused."""

    pod: str
    node: str | None


class PolicyRow(msgspec.Struct, frozen=True, rename="camel"):
    """Figures of one policy.

    Attributes
    ----------
    allocated_at_100, allocated_at_130 : float or None
        Allocated GPUs in % of all, once pods had asked for so many %. None for a list
        that asks for less.
    allocated : float
        The same at the end.
    first_refusal : float or None
        What pods had asked for, in % of all, with the first that was refused. None if
        none was.
    refused : int
        Pods that went nowhere.
    fragmented : float
        Part of the free GPUs at the end that is a fragment for the pods of the list,
        in %.
    linked_sets : float or None
        Pods of several GPUs on nodes that say that their GPUs are linked, in % of those
        placed. None where no node tells, or there is no such pod.
    curve : tuple
        Pairs of what was asked for and what was allocated, in %.
    """

    policy: str
    allocated_at_100: float | None = msgspec.field(name="allocatedAt100")
    allocated_at_130: float | None = msgspec.field(name="allocatedAt130")
    allocated: float
    first_refusal: float | None
    refused: int
    fragmented: float
    linked_sets: float | None
    curve: tuple[tuple[float, float], ...]


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """A replay, with its conditions.

    Attributes
    ----------
    gpus : float
        GPUs of the cluster.
    conditions : dict
        Option to its value.
    placements : tuple of PlacementRow
        Of the first policy, in the order of the pods.
    """

    nodes: int
    gpus: float
    pods: int
    conditions: Mapping[str, str | int]
    policies: tuple[PolicyRow, ...]
    placements: tuple[PlacementRow, ...]


def build_row(
    policy: str, outcome: Outcome, linked_sets: float | None = None
) -> PolicyRow:
    """Return the figures of one policy."""
    refused = sum(placement.node is None for placement in outcome.placements)
    return PolicyRow(
        policy,
        _rounded(outcome.allocated_at(100)),
        _rounded(outcome.allocated_at(130)),
        round(outcome.allocated, 2),
        _rounded(outcome.asked_until_refusal),
        refused,
        round(100 * outcome.fragmented_at_end, 1),
        _rounded(linked_sets),
        tuple(_curve(outcome)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _curve(outcome: Outcome) -> Iterator[tuple[float, float]]:
    """Yield arrived and allocated %, once for each hundredth of the capacity."""
    capacity = max(outcome.capacity, 1)
    last = 0.0
    yield 0.0, round(100 * outcome.at_start / capacity, 2)
    for index, point in enumerate(outcome.points):
        arrived = 100 * point.arrived / capacity
        if arrived >= last + 1 or index == len(outcome.points) - 1:
            last = arrived
            yield round(arrived, 2), round(100 * point.allocated / capacity, 2)


def linked_part(
    outcome: Outcome, pods: Sequence[QueuedPod], snapshot: Snapshot, label: str
) -> float | None:
    """Return how many % of the placed pods of several GPUs are on linked ones.

    `label` is the label that tells of a link; None where no node has it.
    """
    column = snapshot.labels.get(label)
    if column is None or not column.codes.any():
        return None
    linked = column.codes == column.code_of.get("nvlink", -1)
    nodes = [
        snapshot.nodes.column_of[placement.node]
        for placement, pod in zip(outcome.placements, pods, strict=True)
        if placement.node is not None and pod.gpus > 1
    ]
    return 100 * float(linked[nodes].mean()) if nodes else None


_COLUMNS: Final = (
    "policy",
    "at 100 %",
    "at 130 %",
    "at the end",
    "first refusal",
    "refused",
    "fragments",
    "linked sets",
)


_LEGEND: Final = (
    "All in %: allocated GPUs, once pods had asked for 100 % and 130 % of all, and at",
    "the end; what they had asked for with the first refusal; free GPUs that are",
    "fragments for these pods; pods of several GPUs on linked ones. - is not known.",
)


def render_text(report: Report, *, has_placements: bool) -> str:
    """Return a report in lines of 100 columns at most."""
    first = report.policies[0]
    verdict = (
        f"All {report.pods:,} pods found a node"
        if not first.refused
        else f"{first.refused:,} of {report.pods:,} pods found no node"
    )
    gpus = f"{report.gpus:,.12g} GPUs on {report.nodes:,} nodes"
    said = ", ".join(f"{name} {value}" for name, value in report.conditions.items())
    answer = f"{verdict}; {first.allocated:.2f} % of {gpus} are allocated."
    if len(report.policies) > 1:
        answer = f"By {first.policy}, {answer[0].lower()}{answer[1:]} {_most(report)}"
    lines = [
        *textwrap.wrap(answer, table.WIDTH),
        f"({said})",
        "",
        *_table([_COLUMNS, *map(_cells, report.policies)]),
        "",
        *_LEGEND,
    ]
    if has_placements:
        rows = [(row.pod, row.node or "-") for row in report.placements]
        by = f" BY {first.policy}" if len(report.policies) > 1 else ""
        lines += ["", *_table([("POD", f"NODE{by}"), *rows], is_text=True)]
    return "\n".join(lines) + "\n"


def _most(report: Report) -> str:
    """Return which of several policies allocates most, as far as is printed."""
    shown = {row.policy: f"{row.allocated:.2f}" for row in report.policies}
    most = max(shown.values(), key=float)
    first, *others = (name for name, value in shown.items() if value == most)
    if len(others) == len(shown) - 1:
        return "The others allocate as much."
    if others:
        return f"{', '.join([first, *others])} allocate most, {most} %."
    return f"{first} allocates most, {most} %."


def _cells(row: PolicyRow) -> tuple[str, ...]:
    figures = (
        row.allocated_at_100,
        row.allocated_at_130,
        row.allocated,
        row.first_refusal,
    )
    linked = "-" if row.linked_sets is None else f"{row.linked_sets:.1f}"
    return (
        row.policy,
        *("-" if figure is None else f"{figure:.2f}" for figure in figures),
        f"{row.refused:,}",
        f"{row.fragmented:.1f}",
        linked,
    )


def _table(rows: Sequence[Sequence[str]], *, is_text: bool = False) -> list[str]:
    """Return rows in columns; all but the first one to the right, unless text."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if is_text or index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# Of the picture, in pixels: its size, and the margins of the axes.
WIDTH: Final = 760

HEIGHT: Final = 460

LEFT: Final = 60

RIGHT: Final = 150

TOP: Final = 40

BOTTOM: Final = 50

# Told apart with any kind of colour vision (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_STEP: Final = 20


def render_svg(report: Report) -> str:
    """Return a picture of what was allocated against what was asked for."""
    most = max((p[0] for row in report.policies for p in row.curve), default=0.0)
    end = max(-(-most // _STEP) * _STEP, 100.0)

    def at(asked: float, allocated: float) -> tuple[float, float]:
        x = LEFT + asked / end * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - allocated / 100 * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
            f' viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
        ),
        "<title>Allocated GPUs against GPUs asked for</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in range(0, 101, _STEP):
        (x, y), (right, _) = at(0, tick), at(end, tick)
        lines.append(f'<path d="M{x} {y}H{right}" stroke="#ddd"/>')
        lines.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{tick}</text>')
    for tick in range(0, int(end) + 1, _STEP):
        x, y = at(tick, 0)
        lines.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{tick}</text>')
    bottom = HEIGHT - 10
    lines.append(f'<text x="{LEFT}" y="{TOP - 16}">allocated, in % of all GPUs</text>')
    lines.append(f'<text x="{LEFT}" y="{bottom}">asked for, in % of all GPUs</text>')
    for index, row in enumerate(report.policies):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(f"{x},{y}" for x, y in (at(*point) for point in row.curve))
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}"'
            ' stroke-width="2"/>'
        )
        y = TOP + 18 * index
        x = WIDTH - RIGHT + 14
        lines.append(f'<path d="M{x} {y}h20" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{x + 26}" y="{y + 4}">{escape(row.policy)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
