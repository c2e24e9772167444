"""Pages name files and targets that there are."""

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
FOLDERS: Final = (
    *("scoring", "cluster", "extender", "injector", "service", "configs", "deploy"),
    *("bench", "tests", "docs", "requirements"),
)


def missing_names(text: str) -> list[str]:
    """Return files and targets of make that `text` names in code and are not there."""
    code = re.findall(r"`([^`\n]+)`", text)
    files = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]+)(?![\w*{{])")
    named = [name for span in code for name in files.findall(span)]
    lost = [
        name
        for name in named
        if not (ROOT / name.rstrip("/.")).exists() and "/." not in name  # of a run
    ]
    targets = re.compile(r"^make (?:-j\d+ )?([a-z][a-z0-9-]*)")
    wanted = [name for span in code for name in targets.findall(span)]
    return lost + [f"make {name}" for name in wanted if name not in TARGETS]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_what_there_is(page: str) -> None:
    assert missing_names((ROOT / page).read_text()) == []


def test_a_file_and_a_target_that_are_gone_are_found() -> None:
    text = "`scoring/strategies.py`, `make tests`, `make check`, `scoring/terms.py`"

    assert missing_names(text) == ["scoring/strategies.py", "make tests"]
