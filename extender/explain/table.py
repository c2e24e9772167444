"""An explanation as text: the request, a table of the nodes, the outcome."""

from collections.abc import Iterator, Sequence

from extender.explain.page import ExplanationPage, NodeRow
from scoring.quantity import show_amount
from scoring.resources import PODS

GAP = "  "


def render(page: ExplanationPage) -> str:
    """Return an explanation as lines of text."""
    lines = [*_heading(page), "", *_table(page), "", *_outcome(page), ""]
    return "\n".join(map(_printable, lines))


def _printable(line: str) -> str:
    """Return a line without what a terminal would obey, which any file may contain."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in line
    )


def _heading(page: ExplanationPage) -> Iterator[str]:
    pod, settings = page.pod, page.settings
    asked = ", ".join(
        f"{show_amount(name, amount)} {name}"
        for name, amount in pod.request.items()
        if name != PODS
    )
    yield f"{pod.namespace}/{pod.name or '(no name)'} asks {asked or 'nothing'}"
    yield (
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


def _outcome(page: ExplanationPage) -> Iterator[str]:
    """Yield what would be sent, and notes."""
    wire = page.wire
    if wire.asked:
        yield (
            f"kube-scheduler would offer {wire.offered} of"
            f" {page.snapshot.node_count} nodes; {wire.passed} pass."
        )
    if wire.shown:
        yield f"Every node would carry one reason: {wire.shown}"
    elif wire.reasons:
        told = sorted(wire.reasons.items(), key=lambda item: (-item[1], item[0]))
        yield "Refused: " + ", ".join(f"{text} ({count})" for text, count in told)
    yield from page.notes
    if page.not_modelled:
        yield "Not modelled, and asked by this pod: " + ", ".join(page.not_modelled)
