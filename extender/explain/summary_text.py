"""The summary of an explanation as text: answer, reasons, what would help, notes.

At most 40 lines of 100 columns, however large the cluster and whatever it is called.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from extender.explain.explain import UNKNOWN_REPELLERS
from extender.explain.page import ExplanationPage, SummaryRow
from extender.explain.summary import QUOTA, may_refuse
from extender.explain.table import (
    GAP,
    MAX_NAME,
    WIDTH,
    printable,
    render,
    render_narrow,
    render_node,
    shorten_name,
)
from scoring.quantity import show_amount
from scoring.resources import PODS

MAX_LINES: Final = 40

# Lines of one node's misses, of the first sentence, of each note.
MAX_DETAILS: Final = 3

MAX_SENTENCE: Final = 3

MAX_NOTE: Final = 2

MAX_PROSPECT: Final = 4

MAX_TYPE: Final = 20

MAX_MESSAGE: Final = 4

# What is left of a name at least, where there are many terms.
MIN_NAME: Final = 24

MAX_GROUPS: Final = 8

# Select Graphic Rendition of ECMA-48: bold green, bold red, dim, and an end to it.
_GOOD, _BAD, _DIM, _END = "\x1b[1;32m", "\x1b[1;31m", "\x1b[2m", "\x1b[0m"


def render_page(
    page: ExplanationPage,
    node: str = "",
    *,
    is_wide: bool = False,
    has_colours: bool = False,
) -> str:
    """Return the summary of a page, and its rows if it has any.

    `node` is the one that is shown in full; empty for a table.
    """
    summary = render_summary(page, has_colours=has_colours)
    if not page.nodes:
        return summary
    if node:
        return f"{summary}\n{render_node(page)}"
    return f"{summary}\n{render(page) if is_wide else render_narrow(page)}"


def render_summary(page: ExplanationPage, *, has_colours: bool = False) -> str:
    """Return the summary of a page as lines of text."""
    summary = page.summary
    if summary is None:
        raise ValueError("page: wanted a summary, got none")
    answer = _wrap(f"{summary.sentence}.", MAX_SENTENCE)
    facts = [*_wrap(_heading(page), MAX_NOTE)]
    if summary.change:
        facts.append(_crop(f"{summary.change}."))
    if summary.preemption:
        facts += _wrap(f"{summary.preemption}.", MAX_NOTE)
    parts = [
        facts,
        _groups(summary),
        _nearest(summary) if summary.nearest else _best(page, summary),
        _help(summary),
        list(_notes(page, summary)),
    ]
    plain = [*answer, *(line for part in parts if part for line in ("", *part))]
    if plain[len(answer)] == "":  # what is asked stands right under the answer
        del plain[len(answer)]
    if len(plain) > MAX_LINES:
        plain = [*plain[: MAX_LINES - 1], "... (-o json has all)"]
    lines = [_crop(printable(line)) for line in plain]
    if has_colours:
        colour = _GOOD if summary.fits else _BAD
        count = len(answer)
        lines[:count] = [f"{colour}{line}{_END}" for line in lines[:count]]
        lines = [
            f"{_DIM}{line}{_END}"
            if line.startswith(("NODES ", "NEAREST ", "BEST "))
            else line
            for line in lines
        ]
    return "\n".join(lines) + "\n"


def _wrap(text: str, most: int) -> list[str]:
    """Return a text in at most so many lines."""
    return textwrap.wrap(
        printable(text),
        WIDTH,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )


def _crop(text: str, width: int = WIDTH) -> str:
    """Return a text in one line of at most `width` columns."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def _heading(page: ExplanationPage) -> str:
    """Return what the pod asks, of how many nodes."""
    pod = page.pod
    amounts = ", ".join(
        f"{show_amount(name, amount)} {name}"
        for name, amount in pod.request.items()
        if name != PODS
    )
    wishes = []
    if pod.demand is not None and (pod.demand.types or pod.demand.min_memory):
        wishes += [f"type {' or '.join(pod.demand.types)}"] if pod.demand.types else []
    wanted = f" ({', '.join(wishes)})" if wishes else ""
    count = page.snapshot.node_count
    of = "1 node" if count == 1 else f"{count} nodes"
    name = f"{pod.namespace}/{pod.name or '(no name)'}"
    return f"{name} asks {amounts or 'nothing'}{wanted}; the cluster has {of}."


def _groups(summary: SummaryRow) -> list[str]:
    """Return the nodes by what kube-scheduler and we say of them."""
    if not summary.groups:
        return []
    shown = MAX_GROUPS
    if len(summary.groups) == MAX_GROUPS + 1:
        shown += 1  # one that is left over takes no more room than its count
    rows = [("NODES", "KUBE-SCHEDULER", "GPU-EXTENDER")]
    rows += [
        (str(group.node_count), group.scheduler or "ok", group.ours or "ok")
        for group in summary.groups[:shown]
    ]
    rest = summary.groups[shown:]
    if rest:
        count = sum(group.node_count for group in rest)
        rows.append((str(count), f"{len(rest)} other pairs of reasons", ""))
    lines = list(_columns(rows, (7, 58, 40)))
    if summary.scheduler_message:
        message = f"As kube-scheduler puts it: {summary.scheduler_message}"
        lines += _wrap(message, MAX_MESSAGE)
    return lines


def _columns(
    rows: Sequence[Sequence[str]], widest: Sequence[int], right: Iterable[int] = (0,)
) -> Iterator[str]:
    """Yield rows with aligned columns, none wider than it may be."""
    cropped = [
        [_crop(cell, most) for cell, most in zip(row, widest, strict=True)]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cropped, strict=True)]
    for number, row in enumerate(cropped):
        cells = [
            cell.rjust(width) if index in right and number else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield _crop(GAP.join(cells).rstrip())


def _nearest(summary: SummaryRow) -> list[str]:
    """Return the nodes that fail the fewest checks, a line for each."""
    rows = [("NEAREST", "WHAT IT LACKS")]
    for miss in summary.nearest:
        more = len(miss.details) - MAX_DETAILS
        details = [*miss.details[:MAX_DETAILS]]
        if more > 0:
            details[-1] += f"; and {more} more"
        for index, detail in enumerate(details):
            name = shorten_name(miss.name, MAX_NAME)
            rows.append(("" if index else name, detail))
    return list(_columns(rows, (MAX_NAME, WIDTH), right=()))


def _best(page: ExplanationPage, summary: SummaryRow) -> list[str]:
    """Return the nodes that are preferred, with their score, and its legend.

    And what the pod would get of the first one.
    """
    weights = page.settings.weights
    terms = [name for name, weight in weights.items() if weight]
    if not summary.best or not any(row.terms for row in summary.best):
        return []
    head = ("BEST", "TYPE", "SCORE", *(f"{name}({weights[name]})" for name in terms))
    rows = [head]
    for row in summary.best:
        parts = (_number(row.terms.get(name)) for name in terms)
        kind = _crop(row.type or "-", MAX_TYPE)
        rows.append((row.name, kind, str(row.priority), *parts))
    legend = (
        f"SCORE is what kube-scheduler is sent, 0 to {page.settings.max_score}"
        f" ({page.settings.normalize}); the terms are 0 to 100, with their weights"
    )
    first = summary.best[0]
    prospect = f"On {first.name}: {first.detail}." if first.detail else ""
    return [
        *_tables(rows),
        *_wrap(f"{legend}.", MAX_NOTE),
        *_wrap(prospect, MAX_PROSPECT),
    ]


def _tables(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows of a name, a type and figures, in as many tables as `WIDTH` wants.

    Names get what figures leave, and lack their middle where that is too little.
    """
    names, kinds, *figures = zip(*rows, strict=True)
    least = min(MIN_NAME, max(map(len, names)))
    tables: list[list[Sequence[str]]] = [[kinds]]
    room = WIDTH - least - _width_of(kinds)
    for column in figures:
        room -= _width_of(column)
        if room < 0:
            tables.append([])
            room = WIDTH - least - _width_of(column)
        tables[-1].append(column)
    for table in tables:
        most = min(WIDTH - sum(map(_width_of, table)), MAX_NAME)
        short = [shorten_name(name, most) for name in names]
        lines = list(zip(short, *table, strict=True))
        right = range(1 + (table[0] is kinds), len(table) + 1)
        yield from _columns(lines, [WIDTH] * (len(table) + 1), right)


def _width_of(column: Sequence[str]) -> int:
    """Return the columns that a column takes beside others."""
    return len(GAP) + max(map(len, column))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 1):.1f}".removesuffix(".0")


def _help(summary: SummaryRow) -> list[str]:
    """Return what would help, in one line."""
    head = "Would help: "
    if not summary.help:
        return []
    line = f"{head}{summary.help}"
    if len(line) > WIDTH and summary.remedies:  # the first alone
        line = head + summary.remedies[0].text
    return [_crop(line)]


def _notes(page: ExplanationPage, summary: SummaryRow) -> Iterator[str]:
    """Yield what a reader should know beside."""
    if not summary.replicas:
        yield "No such pod is asked for now; this is about one."
    if summary.replicas > 1:
        text = f"{summary.replicas} such pods are asked for; this is about one"
        yield from _wrap(f"{text}{_room(page, summary)}.", MAX_NOTE)
    for text in summary.warnings:
        yield from _wrap(f"Warning of the webhook: {text}", MAX_NOTE)
    for text in page.notes:
        yield from _wrap(text, MAX_NOTE)
    others = {UNKNOWN_REPELLERS, QUOTA}  # which this pod does not ask
    if asked := [wish for wish in page.not_modelled if wish not in others]:
        listed = ", ".join(asked)
        yield from _wrap(f"Not modelled, and asked by this pod: {listed}", MAX_NOTE)
    unseen = [UNKNOWN_REPELLERS] if UNKNOWN_REPELLERS in page.not_modelled else []
    if QUOTA in page.not_modelled and page.pod.origin == "manifest":
        unseen.append("quotas")  # a pod that exists has passed them
    if unseen:
        yield from _wrap(f"Not looked at here: {', '.join(unseen)}", MAX_NOTE)


def _room(page: ExplanationPage, summary: SummaryRow) -> str:
    """Return how many of several replicas fit, and what was left out of that."""
    if summary.room is None:
        return ""
    if not summary.room:
        return ", and none fits now"
    wishes = [wish for wish in page.not_modelled if may_refuse(wish)]
    if summary.room < summary.replicas:
        verb = "fits" if summary.room == 1 else "fit"
        most = "at most " if wishes else ""
        return f", and {most}{summary.room} {verb} now"
    if wishes:
        return f", and whether all fit beside each other is not checked: {wishes[0]}"
    return ", and all fit now"
