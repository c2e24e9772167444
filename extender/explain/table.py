"""The nodes of an explanation as text: a table, or one node in full."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from extender.explain.page import ExplanationPage, NodeRow
from scoring.quantity import show_amount

GAP: Final = "  "

# Columns of what a person reads.
WIDTH: Final = 100

# Columns of a node's name.
MAX_NAME: Final = 40


def shorten_name(name: str, width: int) -> str:
    """Return a name of at most `width` columns, without its middle if it is longer.

    >>> shorten_name("gpu-pool-7f9c-eu-central-1a-0042", 15)
    'gpu-po...a-0042'
    """
    if len(name) <= width:
        return name
    end = (width - 3) // 2
    return f"{name[: width - 3 - end]}...{name[-end:]}"


def render(page: ExplanationPage) -> str:
    """Return the settings and a table of the nodes, as wide as it has to be."""
    lines = [_settings(page), *_table(page), *_more(page), ""]
    return "\n".join(map(printable, lines))


def render_narrow(page: ExplanationPage) -> str:
    """Return a table of the nodes with one reason each, cut to `WIDTH` columns."""
    rows = [("NODE", "TYPE", "SCORE", "REASON")]
    for node in page.nodes:
        reason = node.scheduler.reason or node.verdict.reason or "fits"
        detail = _detail(node)
        told = f"{reason}: {detail}" if detail else reason
        name = shorten_name(node.name, MAX_NAME)
        rows.append((name, node.type or "-", _number(node.priority), told))
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    widths = [
        min(width, most) for width, most in zip(widths, (MAX_NAME, 24, 7), strict=True)
    ]
    lines = [
        _line(
            [*(c[:w] for c, w in zip(row, widths, strict=False)), row[3]], [*widths, 0]
        )
        for row in rows
    ]
    cut = [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines]
    return "\n".join(map(printable, [*cut, *_more(page), ""]))


def render_node(page: ExplanationPage) -> str:
    """Return the one node of a page in full, a paragraph for each fact."""
    lines = []
    for node in page.nodes:
        lines += [f"{node.name}: {node.type or 'no GPU model known'}"]
        scheduler = node.scheduler.reason or "passes"
        ours = node.verdict.reason or "passes"
        for who, reason, detail in (
            ("kube-scheduler", scheduler, node.scheduler.detail),
            ("gpu-extender", ours, node.verdict.detail),
        ):
            lines.append(f"  {who}: {reason}{f': {detail}' if detail else ''}")
        for name, amounts in node.amounts.items():
            free, total = (
                show_amount(name, n) for n in (amounts.free, amounts.allocatable)
            )
            lines.append(f"  {name}: {free} free of {total}")
        if node.verdict.feasible and node.terms:
            terms = [f"{name} {_number(value)}" for name, value in node.terms.items()]
            lines.append(f"  terms: {', '.join(terms)}; total {_number(node.total)}")
        lines.append(f"  score sent: {_number(node.priority)}")
        if node.failing:
            lines.append("  pods failed here lately: takes no part in scores")
    return "\n".join([*(part for line in lines for part in _folded(line)), ""])


def _folded(line: str) -> Iterator[str]:
    """Yield a line in parts of `WIDTH` columns, as far as its words are shorter."""
    yield from textwrap.wrap(
        printable(line),
        WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _more(page: ExplanationPage) -> list[str]:
    """Return a line that tells of further nodes, if there are any."""
    more = page.snapshot.node_count - len(page.nodes)
    return [f"... and {more} more nodes"] if page.next_offset is not None else []


def printable(line: str) -> str:
    """Return a line without what a terminal would obey, which any file may contain."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in line
    )


def _settings(page: ExplanationPage) -> str:
    """Return what scores and counts go by."""
    settings = page.settings
    return (
        f"{page.snapshot.node_count} nodes, counts: {settings.counts}, profile"
        f" {settings.profile}, {settings.normalize}, scores up to {settings.max_score}"
    )


def _table(page: ExplanationPage) -> list[str]:
    """Return the lines of the table, columns aligned."""
    terms = [name for name, weight in page.settings.weights.items() if weight]
    has_tiers = any(node.tier is not None for node in page.nodes)
    head = [
        "NODE",
        "TYPE",
        "SCHEDULER",
        "VERDICT",
        *(f"{name.upper()}({page.settings.weights[name]})" for name in terms),
        *(["TIER"] if has_tiers else []),
        "TOTAL",
        "SCORE",
        "DETAIL",
    ]
    rows = [head]
    for node in page.nodes:
        cells = [
            node.name,
            node.type or "-",
            node.scheduler.reason or "ok",
            node.verdict.reason or "ok",
            *(_score(node, node.terms.get(name)) for name in terms),
            *([_score(node, node.tier)] if has_tiers else []),
            _score(node, node.total),
            _number(node.priority),
            _detail(node),
        ]
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line; a column is as wide as its widest cell."""
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return GAP.join(padded).rstrip()


def _number(value: float | None) -> str:
    """Return a number with at most one decimal, a dash for none."""
    return "-" if value is None else f"{round(value, 1):.1f}".removesuffix(".0")


def _score(node: NodeRow, value: float | None) -> str:
    """Return a part of a score; a refused node has none."""
    return _number(value if node.verdict.feasible else None)


def _detail(node: NodeRow) -> str:
    """Return the numbers behind the verdicts, and what else sets the node apart."""
    details = [node.scheduler.detail]
    if node.scheduler.passes or not node.verdict.feasible:
        details.append(node.verdict.detail)
    if node.shortlisted is False and node.offered and node.verdict.feasible:
        details.append("not on the shortlist")
    if node.failing:
        details.append("pods failed here lately: takes no part in scores")
    details += [
        f"{amounts.assumed} {name} under way to it"
        for name, amounts in node.amounts.items()
        if amounts.assumed
    ]
    return "; ".join(dict.fromkeys(filter(None, details)))
