"""Pages name files, targets, links, threads and locks that there are."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
    )
)
TARGETS: Final = set(
    re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
)
PACKAGES: Final = (
    "scoring",
    "cluster",
    "extender",
    "injector",
    "simulator",
    "service",
)
FOLDERS: Final = (
    *PACKAGES,
    *("configs", "deploy", "bench", "tests", "docs", "requirements"),
)
ARCHITECTURE: Final = (ROOT / "docs" / "architecture.md").read_text()
CODE: Final = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def code_spans(text: str) -> list[str]:
    """Return what stands between backticks, and the lines of indented commands."""
    return re.findall(r"`([^`\n]+)`", text) + re.findall(r"(?m)^    (\S.*)$", text)


def missing_names(text: str) -> list[str]:
    """Return files and targets of make that `text` names in code and are not there."""
    code = code_spans(text)
    files = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]+)(?![\w*{{])")
    named = [name for span in code for name in files.findall(span)]
    lost = [
        name
        for name in named
        if not (ROOT / name.rstrip("/.")).exists() and "/." not in name  # of a run
    ]
    targets = re.compile(r"^(?:[A-Z0-9_]+=\S+ )*make (?:-j\d+ )?([a-z][a-z0-9-]*)")
    wanted = [name for span in code for name in targets.findall(span)]
    return lost + [f"make {name}" for name in wanted if name not in TARGETS]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def broken_links(page: Path) -> list[str]:
    """Return the links of a page to files, or headings, that are not there."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_what_there_is(page: str) -> None:
    assert missing_names((ROOT / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_to_what_there_is(page: str) -> None:
    assert broken_links(ROOT / page) == []


def test_a_file_and_a_target_that_are_gone_are_found() -> None:
    text = (
        "`scoring/strategies.py`, `make tests`, `make check`, `scoring/terms.py`\n"
        "`WORKERS=1 make e2e`, `WORKERS=1 make e3e`\n\n    make runs\n"
    )

    assert missing_names(text) == [
        "scoring/strategies.py",
        "make tests",
        "make e3e",
        "make runs",
    ]


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One way\n[a](#one-way) [b](#two) [c](page.md) [d](gone.md#x)")

    assert broken_links(page) == ["#two", "gone.md#x"]


def test_the_architecture_names_functions_and_classes_that_there_are() -> None:
    schema = (ROOT / "configs" / "settings.schema.json").read_text()
    words = set(re.findall(r"\w+", "\n".join([*CODE.values(), schema])))
    spans = (
        span
        for span in code_spans(ARCHITECTURE)
        if not re.search(r"/|\.(md|py)$", span)
    )
    # `Ledger.apply`, `look_up`, `TERMS`; a bare lower-case word may be anything
    named = {
        word
        for span in spans
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", span)
        for word in span.split(".")
        if re.search(r"[A-Z]|._.", word)
    }

    assert sorted(named - words) == []


def test_each_function_of_a_walk_is_in_the_file_beside_it() -> None:
    steps = re.findall(r"(?m)^\| (`[^|]+) \| (`[^|]+) \| [^|]+ \|$", ARCHITECTURE)
    lost = [
        f"{files}: {name}"
        for files, functions in steps
        for name in re.findall(r"\w+", " ".join(re.findall(r"`(.+?)`", functions)))
        if not any(
            re.search(rf"(?:def|class) {name}\b", CODE[file])
            for file in re.findall(r"`(.+?)`", files)
        )
    ]

    assert len(steps) > 20
    assert lost == []


def test_the_architecture_lists_every_thread() -> None:
    names = {
        name
        for text in CODE.values()
        for name in re.findall(r"Thread\([^()]*\bname=\"([\w-]+)\"", text)
    }

    assert "ledger" in names
    assert sorted(name for name in names if f"`{name}`" not in ARCHITECTURE) == []


def test_the_architecture_lists_every_file_with_a_lock() -> None:
    section = ARCHITECTURE.partition("## Threads and locks")[2]
    locks = re.compile(r"= threading\.(?:R?Lock|Condition)\(\)")
    files = [name for name, text in CODE.items() if locks.search(text)]

    assert files
    assert [name for name in files if f"`{name}`" not in section] == []
