"""Feeds in the types that a model declares, where no value is lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from calib.data import Array
from calib.errors import ValidationError

__all__ = ["as_declared"]


def as_declared(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Casts a feed to its input's type.

    Rounding to a narrower float type is no loss; a value that overflows, or an integer that changes, is.

    Args:
        name: The input's name, for the message.
        array: What is fed.
        dtype: The type that the model declares.

    Returns:
        The same array where its type is right, otherwise a new one.

    Raises:
        ValidationError: The type, or a value, does not fit.

    >>> as_declared("ids", np.array([7], np.int64), np.dtype("int32")).dtype
    dtype('int32')
    """
    if array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValidationError(
            f"Input {name!r} is declared {dtype}, got {array.dtype}: converting it would lose values."
        )
    with np.errstate(over="ignore", under="ignore"):
        cast = array.astype(dtype)
    _check_kept(name, array, cast)
    return cast


def _check_kept(name: str, array: Array, cast: Array) -> None:
    floats = cast.dtype.kind == "f"
    lost = np.isinf(cast) & np.isfinite(array) if floats else cast != array
    if lost.any():
        raise ValidationError(
            f"Input {name!r} is declared {cast.dtype}, which cannot hold {array[lost][0]!s} "
            f"(and {int(lost.sum()) - 1} more of its values). Scale the input in the recipe, "
            "or leave this precision out."
        )
