"""The pinned requirements are whole on each Python and machine that we name."""

import re
from collections.abc import Iterator, Mapping
from importlib import metadata

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.image.build_tree import MACHINES, PYTHONS
from tests.service_process import ROOT


def pins_of(name: str) -> Mapping[str, str]:
    """Return package -> version of a file of pins."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+) \\$", text))


def find_missing(
    pins: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield what packages ask for there, by their metadata, and no pin gives."""
    wanted = [Requirement(f"{name}=={version}") for name, version in pins.items()]
    seen: set[tuple[str, str]] = set()
    while wanted:
        asked = wanted.pop()
        name = canonicalize_name(asked.name)
        if name not in pins or pins[name] not in asked.specifier:
            yield f"{asked}, got {pins.get(name)}"
            continue
        of_package = metadata.metadata(name)
        if pins[name] != of_package["Version"]:
            yield f"{name} {pins[name]}, installed is {of_package['Version']}"
        for extra in {"", *asked.extras} - {
            one for known, one in seen if known == name
        }:
            seen.add((name, extra))
            for text in of_package.get_all("Requires-Dist") or ():
                one = Requirement(text)
                if one.marker is None or one.marker.evaluate(
                    {**environment, "extra": extra}
                ):
                    wanted.append(one)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("file", ["runtime", "dev"])
def test_what_pins_ask_for_is_pinned(file: str, python: str, machine: str) -> None:
    environment = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
        "platform_machine": {"arm64": "aarch64", "amd64": "x86_64"}[machine],
        "sys_platform": "linux",
        "platform_system": "Linux",
    }

    assert list(find_missing(pins_of(file), environment)) == []


@pytest.mark.parametrize("python", PYTHONS)
def test_each_pinned_package_is_for_each_python(python: str) -> None:
    refused = {
        name: asked
        for name in pins_of("dev")
        if (asked := metadata.metadata(name).json.get("requires_python"))
        and f"{python}.0" not in Requirement(f"python{asked}").specifier
    }

    assert refused == {}


def test_both_files_pin_the_same_versions() -> None:
    runtime, dev = pins_of("runtime"), pins_of("dev")

    assert len(runtime) > 10
    assert {name: dev.get(name) for name in runtime} == dict(runtime)


def test_every_pin_has_a_hash() -> None:
    for name in ("runtime", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pinned = re.findall(r"(?m)^[\w.-]+==.*\n(.*)", text)
        assert len(pinned) == len(pins_of(name))
        assert all(line.startswith("    --hash=sha256:") for line in pinned)
