"""Link matrices of nodes: `nvidia-smi topo -m` and the JSON annotation, read.

A matrix has a number for each pair of GPUs: that of their NVLinks, or a negative one
for the path over PCIe (`PIX` to `SYS`); 0 stands on the diagonal.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from scoring.quantity import shorten

LinkMatrix: TypeAlias = tuple[tuple[int, ...], ...]

MAX_GPUS: Final = 16

# Slots for links in NVML; no GPU has so many.
MAX_LINKS: Final = 36

PIX: Final = -1

PXB: Final = -2

PHB: Final = -3

NODE: Final = -4

SYS: Final = -5

# As `nvidia-smi` writes them; older drivers say SOC.
PATHS: Final = {
    "PIX": PIX,
    "PXB": PXB,
    "PHB": PHB,
    "NODE": NODE,
    "SYS": SYS,
    "SOC": SYS,
}

# Characters; 16 GPUs with 32 network cards take a tenth of it.
MAX_TEXT: Final = 65536

MAX_ID: Final = 128

_SELF: Final = "X"

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")

_GPU: Final = re.compile(r"GPU(\d{1,3})", re.ASCII)

_NVLINKS: Final = re.compile(r"NV(\d{1,2})", re.ASCII)

# What stands between two GPUs, for messages; new drivers do not write SOC.
_CODES: Final = f"NV1 to NV{MAX_LINKS}, PIX, PXB, PHB, NODE or SYS"

_KEYS: Final = frozenset({"layout", "matrix", "topology", "ids"})


class LinksError(ValueError):
    """Link data that cannot be read, or that no machine can have."""


@dataclass(frozen=True, slots=True)
class LinkData:
    """What the annotation of a node says of its links.

    Attributes
    ----------
    matrix : tuple of tuples of int
        Empty where a layout is named in its place.
    layout : str
        The name of a layout; empty where a matrix is given.
    ids : tuple of str
        UUIDs of the GPUs in the order of the matrix; empty if not given.
    """

    matrix: LinkMatrix = ()
    layout: str = ""
    ids: tuple[str, ...] = ()


def read_links(text: str) -> LinkData:
    """Return what the annotation of a node says.

    Parameters
    ----------
    text : str
        What ``nvidia-smi topo -m`` prints, or JSON: a matrix, or an object with one of
        ``matrix``, ``topology`` (that text) and ``layout`` (a name), and with ``ids``.

    Raises
    ------
    LinksError
    """
    if len(text) > MAX_TEXT:
        raise LinksError(f"wanted at most {MAX_TEXT} characters, got {len(text)}")
    if not text.lstrip().startswith(("[", "{")):
        return LinkData(read_matrix_text(text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LinksError("wanted JSON or the text of 'nvidia-smi topo -m'") from error
    return _read_object(value if isinstance(value, dict) else {"matrix": value})


def _read_object(value: dict[str, Any]) -> LinkData:
    unknown = sorted(value.keys() - _KEYS)
    if unknown:
        raise LinksError(f"unknown key {shorten(unknown[0])}")
    given = sorted(value.keys() - {"ids"})
    if len(given) != 1:
        raise LinksError(f"wanted one of layout, matrix, topology, got {len(given)}")
    ids = _read_ids(value.get("ids", []))
    kind, data = given[0], value[given[0]]
    if kind == "matrix":
        matrix = _read_rows(
            [
                _list(row, f"GPU{index}")
                for index, row in enumerate(_list(data, "matrix"))
            ]
        )
    elif not isinstance(data, str):
        raise LinksError(f"{kind}: wanted text, got {shorten(data)}")
    elif kind == "layout":
        return LinkData(layout=data, ids=ids)
    else:
        matrix = read_matrix_text(data)
    if ids and len(ids) != len(matrix):
        raise LinksError(f"ids: wanted {len(matrix)}, got {len(ids)}")
    return LinkData(matrix, ids=ids)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise LinksError(f"{name}: wanted a list, got {shorten(value)}")
    return value


def _read_ids(value: Any) -> tuple[str, ...]:
    ids = _list(value, "ids")
    if not all(isinstance(item, str) and 0 < len(item) <= MAX_ID for item in ids):
        raise LinksError(f"ids: wanted texts of 1 to {MAX_ID} characters")
    if len(set(ids)) != len(ids):
        raise LinksError("ids: one stands there twice")
    if len(ids) > MAX_GPUS:
        raise LinksError(f"ids: wanted at most {MAX_GPUS}, got {len(ids)}")
    return tuple(ids)


def _read_entry(entry: Any, where: str) -> int | None:
    """Return one entry: a code or a number of NVLinks, None for the GPU itself.

    `where` names its row and column, for the message of `LinksError`.
    """
    if entry is None:
        return None
    if isinstance(entry, int) and not isinstance(entry, bool):
        if not 0 <= entry <= MAX_LINKS:
            wanted = f"wanted 0 to {MAX_LINKS} links"
            raise LinksError(f"{where}: {wanted}, got {shorten(entry)}")
        return entry
    code = entry.strip() if isinstance(entry, str) else ""
    if code == _SELF:
        return None
    if code in PATHS:
        return PATHS[code]
    found = _NVLINKS.fullmatch(code)
    if found is None or not 0 < int(found[1]) <= MAX_LINKS:
        raise LinksError(f"{where}: wanted {_CODES}, got {shorten(entry)}")
    return int(found[1])


def read_matrix_text(text: str) -> LinkMatrix:
    """Return the matrix that ``nvidia-smi topo -m`` prints; raise `LinksError`.

    Columns of network cards and affinities are left out, so are terminal escapes.
    """
    lines = [line.split() for line in _ESCAPE.sub("", text).splitlines()]
    if not any(lines):
        raise LinksError("wanted the text of 'nvidia-smi topo -m', got no text")
    headers = [index for index, line in enumerate(lines) if line[:1] == ["GPU0"]]
    if not headers:
        raise LinksError("wanted a line that begins with GPU0")
    header = lines[headers[0]]
    count = 0
    while count < len(header) and header[count] == f"GPU{count}":
        count += 1
    if any(_GPU.fullmatch(name) for name in header[count:]):
        raise LinksError("wanted columns GPU0, GPU1 and so on, in that order")
    rows: dict[str, list[str]] = {}
    for line in lines[headers[0] + 1 :]:
        if line and _GPU.fullmatch(line[0]):
            if line[0] in rows:
                raise LinksError(f"two rows of {line[0]}")
            rows[line[0]] = line[1 : count + 1]
    if list(rows) != header[:count]:
        wanted = f"wanted {count} rows in the order of the columns"
        raise LinksError(f"{wanted}, got {shorten(list(rows))}")
    return _read_rows(list(rows.values()))


def _read_rows(listed: Sequence[Sequence[Any]]) -> LinkMatrix:
    """Return a matrix, sound in itself; raise `LinksError`."""
    count = len(listed)
    if not 0 < count <= MAX_GPUS:
        raise LinksError(f"wanted 1 to {MAX_GPUS} GPUs, got {count}")
    rows = []
    for i, entries in enumerate(listed):
        if len(entries) != count:
            raise LinksError(f"GPU{i}: wanted {count} entries, got {len(entries)}")
        row = [
            _read_entry(entry, f"GPU{i} to GPU{j}") for j, entry in enumerate(entries)
        ]
        if row[i]:
            wanted = "wanted X for the GPU itself"
            raise LinksError(f"GPU{i}: {wanted}, got {shorten(entries[i])}")
        if None in row[:i] + row[i + 1 :]:
            raise LinksError(f"GPU{i}: wanted X for the GPU itself alone")
        rows.append(row)
    # A number of links that is 0 says nothing of the path over PCIe.
    matrix = [
        [0 if i == j else entry or SYS for j, entry in enumerate(row)]
        for i, row in enumerate(rows)
    ]
    for i in range(count):
        for j in range(i):
            if matrix[i][j] != matrix[j][i]:
                raise LinksError(f"not symmetric: GPU{j} to GPU{i} and back differ")
    return tuple(map(tuple, matrix))
