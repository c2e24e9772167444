"""Whether all that names our version names that of `pyproject.toml`."""

import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from deploy.release_check import files_of, find_other_versions, read_version
from tests.service_process import ROOT

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-11-29\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of release 1.2.3 that agrees with itself."""
    for name, text in {
        "docs/install.md": "    docker push R/gpu-extender:1.2.3\n",
        "deploy/image/Dockerfile": "# --build-arg VERSION=1.2.3\n",
        "deploy/chart/Chart.yaml": 'version: 1.2.3\nappVersion: "1.2.3"\n',
        "CHANGELOG.md": CHANGELOG,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_everything_in_the_tree_names_the_version_of_the_project() -> None:
    assert list(find_other_versions(ROOT, read_version())) == []


def test_what_is_installed_here_is_of_that_version() -> None:
    assert version("gpu-extender") == read_version()


def test_a_release_that_agrees_with_itself_has_no_fault(root: Path) -> None:
    assert list(find_other_versions(root, "1.2.3")) == []
    (root / "deploy" / "chart" / "Chart.yaml").unlink()
    assert list(find_other_versions(root, "1.2.3")) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        pytest.param(
            "docs/install.md",
            "gpu-extender:1.2.2",
            "docs/install.md: wanted 1.2.3, got 1.2.2",
            id="a page",
        ),
        pytest.param(
            "deploy/image/Dockerfile",
            "REPOSITORY:1.2.3-rc1",
            "deploy/image/Dockerfile: wanted 1.2.3, got 1.2.3-rc1",
            id="the image",
        ),
        pytest.param(
            "deploy/chart/Chart.yaml",
            "version: 1.2.3\nappVersion: 1.2.4\n",
            "deploy/chart/Chart.yaml: appVersion: wanted 1.2.3, got 1.2.4",
            id="the chart",
        ),
        pytest.param(
            "CHANGELOG.md",
            "## next\n",
            "CHANGELOG.md: wanted a release such as 1.2.3 - 2026-11-29, got 'next'",
            id="a heading that is no release",
        ),
        pytest.param(
            "CHANGELOG.md",
            "## 1.2.2 - 2026-10-01\n\n## 1.2.3 - 2026-11-29\n",
            "CHANGELOG.md: wanted the newest release first, each once",
            id="the oldest release first",
        ),
        pytest.param(
            "CHANGELOG.md",
            "## 1.10.0 - 2026-11-29\n",
            "CHANGELOG.md: wanted no release after 1.2.3",
            id="a release that is yet to come",
        ),
    ],
)
def test_another_version_is_told_with_its_place(
    root: Path, name: str, text: str, fault: str
) -> None:
    (root / name).write_text(text)

    assert list(find_other_versions(root, "1.2.3")) == [fault]


def test_wheels_are_the_same_but_for_the_record_of_their_files(tmp_path: Path) -> None:
    found = []
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.writestr("service/a.py", text)
            packed.writestr("g.dist-info/RECORD", name)
        found.append(files_of(tmp_path / name))

    assert found[0] == found[1] != found[2]
