"""Arrays that belong to a snapshot until something in them changes.

A read-only array is a snapshot's, and is copied before it is written to.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)


def writeable(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return the array, or a copy of it if it belongs to a snapshot already."""
    return array if array.flags.writeable else array.copy()


def put(array: NDArray[_Scalar], place: int, value: int) -> NDArray[_Scalar]:
    """Return an array of shape (N,) with `value` at `place`."""
    if array[place] == value:
        return array
    array = writeable(array)
    array[place] = value
    return array


def put_column(
    table: NDArray[_Scalar], column: int, values: list[int] | list[bool]
) -> NDArray[_Scalar]:
    """Return a table of shape (R, N) with R `values` in a column."""
    if table[:, column].tolist() == values:
        return table
    table = writeable(table)
    table[:, column] = values
    return table
