"""That the references import nothing of what they are held against."""

import ast
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(FOLDER.glob("*.py")) if path != Path(__file__)],
    ids=lambda path: path.name,
)
def test_a_reference_imports_the_standard_library_alone(path: Path) -> None:
    imported = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported.append(node.module or "")

    assert [
        name
        for name in imported
        if not name.startswith("tests.oracles.")
        and name.partition(".")[0] not in sys.stdlib_module_names
    ] == []
