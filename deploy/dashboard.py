"""Make Grafana's dashboard, and draw its panels as a picture.

    python deploy/dashboard.py                  writes deploy/chart/files/dashboard.json
    python deploy/dashboard.py draw URL         writes docs/dashboard.svg

``draw`` asks the Prometheus at the URL the queries of the panels, over the last ten
minutes. Exit codes: 0 written, 1 Prometheus does not answer.
"""

import html
import itertools
import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DASHBOARD: Final = ROOT / "deploy" / "chart" / "files" / "dashboard.json"
PICTURE: Final = ROOT / "docs" / "dashboard.svg"

COLUMNS: Final = 3
GRID_WIDTH: Final = 24 // COLUMNS
GRID_HEIGHT: Final = 7

# One replica tells what is so for the cluster; in a change of it, two may for a moment.
GPUS: Final = "max by (type, resource, pool, state) (gpu_extender_gpus{})"
OURS: Final = "* on (instance, job) group_left (version) gpu_extender_build_info"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes
    ----------
    queries : mapping
        legend, with labels in double braces -> query
    unit : str
        As Grafana names it.
    text : str
        What it shows, for who hovers over its title.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    text: str = ""


def rate(metric: str, labels: str = "") -> str:
    """Return the rate of a counter in the window that fits the scrapes."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def quantile(share: float, metric: str, by: str = "") -> str:
    """Return a quantile of a histogram, by labels."""
    names = ", ".join(filter(None, (by, "le")))
    buckets = f"sum by ({names}) ({rate(metric + '_bucket')})"
    return f"histogram_quantile({share}, {buckets})"


def gpus(state: str, by: str) -> str:
    """Return the number of GPUs in a state, by labels."""
    selected = GPUS.replace("{}", f'{{state="{state}"}}' if state else "")
    return f"sum by ({by}) ({selected})"


CANDIDATES: Final = 'verb="filter", stage="out"'

# row -> its panels
ROWS: Final[Mapping[str, Sequence[Panel]]] = {
    "GPUs": (
        Panel(
            "GPUs by state",
            {"{{state}}": gpus("", "state")},
            text="Shares and slices count as one each.",
        ),
        Panel(
            "Free by type", {"{{type}} {{resource}}": gpus("free", "type, resource")}
        ),
        Panel(
            "Stranded by pool",
            {"{{pool}} {{resource}}": gpus("stranded", "pool, resource")},
            text="Free where no request of the last hour fits.",
        ),
        Panel(
            "Pods that wait",
            {"{{class}}": "max by (class) (gpu_extender_pending_gpu_pods) > 0"},
            text="By what keeps them from a node; docs/metrics.md has the classes.",
        ),
        Panel(
            "Oldest pod that waits",
            {"age": "max(gpu_extender_oldest_pending_gpu_pod_seconds)"},
            "s",
        ),
        Panel(
            "From created to bound",
            {
                "half": quantile(0.5, "gpu_extender_pod_wait_seconds"),
                "nine of ten": quantile(0.9, "gpu_extender_pod_wait_seconds"),
            },
            "s",
        ),
    ),
    "Scheduling": (
        Panel(
            "Calls",
            {"{{verb}}": f"sum by (verb) ({rate('gpu_extender_requests_total')})"},
            "reqps",
        ),
        Panel(
            "Calls that failed",
            {
                "{{verb}} {{outcome}}": "sum by (verb, outcome) ("
                + rate("gpu_extender_requests_total", 'outcome!="ok"')
                + ")"
            },
            "reqps",
        ),
        Panel(
            "Time of a call, 99 of 100",
            {
                "{{verb}}": quantile(
                    0.99, "gpu_extender_request_duration_seconds", "verb"
                )
            },
            "s",
        ),
        Panel(
            "Attempts that find a node",
            {
                "share": "1 - sum("
                + rate(
                    "gpu_extender_scheduler_candidates_bucket",
                    CANDIDATES + ', le="0.0"',
                )
                + ") / sum("
                + rate("gpu_extender_scheduler_candidates_count", CANDIDATES)
                + ")"
            },
            "percentunit",
        ),
        Panel(
            "Nodes refused, by reason",
            {
                "{{reason}}": "topk(8, sum by (reason) ("
                + rate("gpu_extender_scheduler_rejections_total")
                + ") > 0)"
            },
        ),
        Panel(
            "Bound without a call",
            {
                "{{resource}}": "min by (resource) ("
                "increase(gpu_extender_uncalled_bindings_total[15m]))"
            },
            text="Above 0, kube-scheduler asks no replica about the resource.",
        ),
    ),
    "Webhook": (
        Panel(
            "Reviews",
            {
                "{{outcome}}": "sum by (outcome) ("
                + rate("gpu_extender_webhook_admissions_total")
                + ")"
            },
            "reqps",
        ),
        Panel(
            "Falls along chains",
            {
                "{{outcome}}": "sum by (outcome) ("
                + rate("gpu_extender_webhook_fallbacks_total")
                + ")"
            },
            "reqps",
        ),
        Panel(
            "API server: calls in vain",
            {
                "refused": "sum("
                + rate(
                    "apiserver_admission_webhook_rejection_count",
                    'name="pods.gpu-extender.io", error_type!="no_error"',
                )
                + ")",
                "let through": "sum("
                + rate(
                    "apiserver_admission_webhook_fail_open_count",
                    'name="pods.gpu-extender.io"',
                )
                + ")",
            },
            "reqps",
            "Takes metrics of kube-apiserver in the same Prometheus.",
        ),
    ),
    "Replicas": (
        Panel(
            "Age of the cache",
            {"{{instance}} {{kind}}": "gpu_extender_cache_snapshot_age_seconds"},
            "s",
        ),
        Panel(
            "Watches taken up again",
            {
                "{{kind}} {{reason}}": "sum by (kind, reason) ("
                + rate("gpu_extender_cache_watch_restarts_total")
                + ")"
            },
        ),
        Panel(
            "Files whose newest contents are in use",
            {"{{file}}": "min by (file) (gpu_extender_config_reload_ok)"},
        ),
        Panel(
            "Certificate",
            {"left": "min(gpu_extender_certificate_expiry_timestamp_seconds) - time()"},
            "s",
        ),
        Panel(
            "Processor",
            {"{{instance}}": f"{rate('process_cpu_seconds_total')} {OURS}"},
        ),
        Panel(
            "Memory",
            {"{{instance}} {{version}}": f"process_resident_memory_bytes {OURS}"},
            "bytes",
        ),
    ),
}


def panels() -> Iterator[Panel]:
    """Yield the panels of all rows."""
    yield from itertools.chain.from_iterable(ROWS.values())


def build() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row, members in ROWS.items():
        position = {"x": 0, "y": top, "w": 24, "h": 1}
        placed.append({"type": "row", "title": row, "gridPos": position, "panels": []})
        top += 1
        for number, panel in enumerate(members):
            down, across = divmod(number, COLUMNS)
            placed.append(
                _as_grafana(panel, across * GRID_WIDTH, top + down * GRID_HEIGHT)
            )
        top += -(-len(members) // COLUMNS) * GRID_HEIGHT
    for number, item in enumerate(placed, 1):
        item["id"] = number
    variable = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    return {
        "title": "gpu-extender",
        "uid": "gpu-extender",
        "schemaVersion": 39,
        "tags": ["gpu", "scheduling"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [variable]},
        "panels": placed,
    }


def _as_grafana(panel: Panel, left: int, top: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend}
        for i, (legend, query) in enumerate(panel.queries.items())
    ]
    custom = {"fillOpacity": 10, "showPoints": "never"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": {"x": left, "y": top, "w": GRID_WIDTH, "h": GRID_HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [{**target, "datasource": source} for target in targets],
    }


def write() -> None:
    """Write the dashboard."""
    text = json.dumps(build(), indent=2, ensure_ascii=False)
    DASHBOARD.write_text(text + "\n", encoding="utf-8")


# -- The picture.

WINDOW_SECONDS: Final = 600
DAY_SECONDS: Final = 86_400
STEP_SECONDS: Final = 5
WIDTH: Final = 330
HEIGHT: Final = 170
MARGIN: Final = 14
COLOURS: Final = (
    "#2f81f7", "#d29922", "#3fb950", "#a371f7",
    "#f85149", "#39c5cf", "#db61a2", "#8b949e",
)  # fmt: skip


def ask(url: str, query: str, now: float) -> list[tuple[Mapping[str, str], list[Any]]]:
    """Return the series of a query over the last minutes: labels, times and values."""
    fields = {
        "query": query.replace("$__rate_interval", "1m"),
        "start": f"{now - WINDOW_SECONDS:.0f}",
        "end": f"{now:.0f}",
        "step": str(STEP_SECONDS),
    }
    address = f"{url}/api/v1/query_range?{urllib.parse.urlencode(fields)}"
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  ours
        result = json.load(answer)["data"]["result"]
    return [(series["metric"], series["values"]) for series in result]


def legend_of(legend: str, labels: Mapping[str, str]) -> str:
    """Return a legend with the labels of a series; an empty one is none."""
    named = re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend)
    return " ".join(named.split()) or "none"


def number(value: float, unit: str) -> str:
    """Return a value as people read it."""
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "s" and value >= DAY_SECONDS:
        return f"{value / DAY_SECONDS:.0f} days"
    if unit == "s" and value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.4g}{' s' if unit == 's' else '/s' if unit == 'reqps' else ''}"


def draw(url: str) -> str:
    """Return all panels as one picture."""
    now, parts, top = time.time(), [], MARGIN
    for row, members in ROWS.items():
        parts.append(f'<text class="row" x="{MARGIN}" y="{top + 14}">{row}</text>')
        top += 24
        for i, panel in enumerate(members):
            down, across = divmod(i, COLUMNS)
            left = MARGIN + across * (WIDTH + MARGIN)
            place = f"translate({left} {top + down * (HEIGHT + MARGIN)})"
            parts.append(f'<g transform="{place}">{_draw_panel(panel, url, now)}</g>')
        top += -(-len(members) // COLUMNS) * (HEIGHT + MARGIN)
    width = COLUMNS * (WIDTH + MARGIN) + MARGIN
    style = (
        "text{font:11px system-ui,sans-serif;fill:#768390}.row{font-size:14px;"
        "font-weight:600}.title{font-weight:600}rect{fill:#76839010;stroke:#76839050}"
        "polyline{fill:none;stroke-width:1.5}.axis{stroke:#76839050}"
    )
    label = "The panels of the dashboard: GPUs, scheduling, webhook and replicas"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" '
        f'role="img" aria-label="{label}"><style>{style}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _draw_panel(panel: Panel, url: str, now: float) -> str:
    series = [
        (legend_of(legend, labels), values)
        for legend, query in panel.queries.items()
        for labels, values in ask(url, query, now)
    ][: len(COLOURS)]
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" rx="4"/>']
    parts.append(f'<text class="title" x="8" y="16">{html.escape(panel.title)}</text>')
    if not series:
        parts.append(f'<text x="8" y="{HEIGHT // 2}">no data</text>')
        return "".join(parts)
    points = [(t, float(v)) for _, values in series for t, v in values if v != "NaN"]
    most = max((v for _, v in points), default=0.0)
    floor, ceiling = HEIGHT - 16 - 13 * -(-len(series) // 2), 40
    parts.append(f'<text x="8" y="34">{number(most, panel.unit)}</text>')
    parts.append(
        f'<line class="axis" x1="8" x2="{WIDTH - 8}" y1="{floor}" y2="{floor}"/>'
    )
    begin = min((t for t, _ in points), default=now)
    span = max(now - begin, 1)
    for i, (legend, values) in enumerate(series):
        line = " ".join(
            f"{8 + (t - begin) / span * (WIDTH - 16):.1f},"
            f"{floor - float(v) / (most or 1) * (floor - ceiling):.1f}"
            for t, v in values
            if v != "NaN"
        )
        parts.append(f'<polyline stroke="{COLOURS[i]}" points="{line}"/>')
        x, y = 8 + i % 2 * (WIDTH // 2), floor + 16 + i // 2 * 13
        shown = html.escape(legend[:25])
        parts.append(f'<text x="{x}" y="{y}" style="fill:{COLOURS[i]}">{shown}</text>')
    return "".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Write the dashboard, or the picture."""
    if arguments[:1] == ["draw"] and len(arguments) == 2:  # noqa: PLR2004
        try:
            PICTURE.write_text(draw(arguments[1].rstrip("/")), encoding="utf-8")
        except (urllib.error.URLError, TimeoutError) as error:
            sys.stderr.write(f"{arguments[1]}: {error}\n")
            return 1
        return 0
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
