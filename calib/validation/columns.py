"""Errors of the columns of an output apart, where their ranges are far from each other.

An output may join values of different kinds: boxes of 0 … 640 pixels and scores of 0 … 1. Under one scale
the small ones have no step left, and the figures of the whole output, which the large ones decide, do not
show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.data import Array

__all__ = ["FAR_APART", "ColumnErrors", "ColumnGroup", "column_warnings"]

FAR_APART = 30.0
"""Columns whose largest values differ by more than this are told apart: 4 of 127 steps would be left."""

_MOST_COLUMNS = 512
_MOST_VALUES = 1 << 21
_BLOCK = 1 << 20
_WORSE_DB = 10.0

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of one output whose values are of one size.

    Attributes:
        axis: The axis that they lie along: 1, or the last one.
        columns: Which: "0–3", or "4, 9–11".
        count: How many.
        reference_amax: Their largest absolute value in the reference.
        max_abs: Largest absolute error.
        cosine: Cosine similarity of the two as flat vectors.
        sqnr_db: 10·log10(Σ reference² / Σ error²) over them, in dB; None without error.
        steps: INT8 steps that their largest value has under one scale for the whole output:
            127 · reference_amax / the output's reference_amax.
    """

    axis: int
    columns: str
    count: int
    reference_amax: float
    max_abs: float
    cosine: float | None
    sqnr_db: float | None
    steps: float


class ColumnErrors:
    """Sums over all samples for each column of an output, along its axis 1 and its last one.

    >>> found = ColumnErrors()
    >>> found.add(np.array([[640.0, 1.0]]), np.array([[639.0, 0.5]]))
    >>> [(one.columns, one.max_abs, round(one.sqnr_db, 2), round(one.steps, 2)) for one in found.groups()]
    [('0', 1.0, 56.12, 127.0), ('1', 0.5, 6.02, 0.2)]
    """

    def __init__(self) -> None:
        self._sums: dict[int, _Floats] = {}
        self._largest: dict[int, _Floats] = {}
        self._varying: set[int] = set()

    def add(self, reference: Array, candidate: Array) -> None:
        """Counts one batch of one shape; values that are not finite on either side are left out."""
        if reference.dtype.kind != "f" or not reference.size or reference.ndim < 2:
            return
        if reference[0].size > _MOST_VALUES:
            return
        axes = [axis for axis in _axes(reference) if reference.shape[axis] <= _MOST_COLUMNS]
        for part in _parts(reference) if axes else ():
            left, right = reference[part].astype(np.float64), candidate[part].astype(np.float64)
            fine = np.isfinite(left) & np.isfinite(right)
            left, right = np.where(fine, left, 0.0), np.where(fine, right, 0.0)
            for axis in axes:
                self._fold(axis, left, right)

    def _fold(self, axis: int, left: _Floats, right: _Floats) -> None:
        others = tuple(other for other in range(left.ndim) if other != axis)
        error = np.abs(right - left)
        with np.errstate(over="ignore"):
            sums = np.stack(
                [
                    np.sum(a * b, axis=others)
                    for a, b in ((left, left), (right, right), (left, right), (error, error))
                ]
            )
        largest = np.stack([np.abs(left).max(axis=others), error.max(axis=others)])
        known = self._sums.setdefault(axis, np.zeros_like(sums))
        if known.shape != sums.shape:
            # The axis has another length in each batch, as sequences have: these are no columns.
            self._varying.add(axis)
            return
        self._sums[axis] = known + sums
        self._largest[axis] = np.maximum(self._largest.get(axis, np.zeros_like(largest)), largest)

    def groups(self) -> tuple[ColumnGroup, ...]:
        """The groups of columns, the largest values first; none where all columns are of one size."""
        for axis in (axis for axis in self._sums if axis not in self._varying):
            levels = _levels(self._largest[axis][0])
            if len(levels) > 1 and np.isfinite(self._sums[axis]).all():
                return tuple(self._group(axis, columns) for columns in levels)
        return ()

    def _group(self, axis: int, columns: list[int]) -> ColumnGroup:
        signal, answer, dot, noise = self._sums[axis][:, columns].sum(axis=1).tolist()
        amax, error = self._largest[axis][:, columns].max(axis=1).tolist()
        whole = float(self._largest[axis][0].max())
        product = math.sqrt(signal) * math.sqrt(answer)
        return ColumnGroup(
            axis=axis,
            columns=describe_columns(columns),
            count=len(columns),
            reference_amax=amax,
            max_abs=error,
            cosine=1.0 if not noise else min(1.0, max(-1.0, dot / product)) if product else 0.0,
            sqnr_db=10.0 * (math.log10(signal) - math.log10(noise)) if signal and noise else None,
            steps=127.0 * amax / whole,
        )


def _axes(array: Array) -> tuple[int, ...]:
    """The axes that columns may lie along: the last one first, the batch axis never."""
    axes = dict.fromkeys((array.ndim - 1, 1))
    return tuple(axis for axis in axes if array.shape[axis] > 1)


def _parts(array: Array) -> Iterator[slice]:
    step = max(1, _BLOCK // max(1, array[0].size))
    return (slice(start, start + step) for start in range(0, len(array), step))


def _levels(amax: _Floats) -> list[list[int]]:
    """Columns by size: those within a factor of 30 of the largest, then of the largest that is left."""
    left = [index for index in np.argsort(-amax, kind="stable").tolist() if amax[index] > 0]
    found: list[list[int]] = []
    while left:
        floor = amax[left[0]] / FAR_APART
        found.append(sorted(index for index in left if amax[index] >= floor))
        left = [index for index in left if amax[index] < floor]
    return found


def describe_columns(columns: Sequence[int]) -> str:
    """Numbers of columns, neighbours joined.

    >>> describe_columns([0, 1, 2, 3, 5, 7, 8])
    '0–3, 5, 7–8'
    """
    runs: list[list[int]] = []
    for column in columns:
        if runs and column == runs[-1][-1] + 1:
            runs[-1].append(column)
        else:
            runs.append([column])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return ", ".join(parts[:4]) + (" …" if len(parts) > 4 else "")


def column_warnings(output: str, sqnr_db: float | None, groups: Sequence[ColumnGroup]) -> tuple[str, ...]:
    """What the figures of a whole output hide: columns that lost far more than it.

    Args:
        output: The output's name.
        sqnr_db: SQNR of the whole output; None without error.
        groups: Its columns by size.

    >>> found = ColumnErrors()
    >>> found.add(np.array([[640.0, 1.0]]), np.array([[639.0, 0.5]]))
    >>> print(column_warnings("out", 56.12, found.groups())[0])   # doctest: +NORMALIZE_WHITESPACE
    output 'out' joins values of very different ranges: columns 0 (±640) and 1 (±1). The latter have 6.0 dB,
    the whole output 56.1 dB, which the large values decide. Under one INT8 scale they have 0.2 of 127 steps:
    leave what joins them in float (--keep-float), or quantize before it.
    """
    if sqnr_db is None or not groups:
        return ()
    first = groups[0]
    return tuple(
        f"output {output!r} joins values of very different ranges: columns {first.columns} "
        f"(±{first.reference_amax:.3g}) and {one.columns} (±{one.reference_amax:.3g}). The latter have "
        f"{one.sqnr_db:.1f} dB, the whole output {sqnr_db:.1f} dB, which the large values decide. Under one "
        f"INT8 scale they have {one.steps:.2g} of 127 steps: leave what joins them in float (--keep-float), "
        "or quantize before it."
        for one in groups[1:]
        if one.sqnr_db is not None and one.sqnr_db < sqnr_db - _WORSE_DB
    )
