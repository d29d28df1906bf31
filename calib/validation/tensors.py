"""How far a candidate's output is from the baseline's, summed batch by batch.

Every value is compared in float64, 64-bit integers exactly, so that nothing wraps around or
overflows in the outputs' own type. Only sums are kept.

What a value that is NaN or infinite does to the figures:

* Where the reference is not finite there is nothing to compare with: the pair is left out of the
  figures and counted. The FP32 model itself is broken there, or masks with infinities.
* Where only the candidate is not finite, the error has no bound: every figure is None, the count says
  how many values did it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.data import Array
from calib.errors import ValidationError
from calib.validation.columns import ColumnErrors
from calib.validation.results import OutputError
from calib.wording import counted

__all__ = [
    "ErrorAccumulator",
    "RowErrors",
    "cosine_similarity",
    "max_abs_error",
    "mean_abs_error",
    "row_errors",
    "sqnr_db",
]

_Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class RowErrors:
    """Sums over each row (first axis) of a pair of arrays; each field has shape [rows].

    Attributes:
        elements: Values compared, finite or not.
        pairs: Values that are finite on both sides; the sums below are over these.
        abs_error: Σ |candidate − reference|.
        max_abs: max |candidate − reference|.
        error_power: Σ (candidate − reference)².
        reference_power: Σ reference².
        candidate_power: Σ candidate².
        dot: Σ reference · candidate.
        reference_amax: max |reference|.
        broken: Values that are NaN or infinite in the candidate.
        reference_broken: The same, in the reference.
        both_broken: The same, in both at the same place.
    """

    elements: _Counts
    pairs: _Counts
    abs_error: _Floats
    max_abs: _Floats
    error_power: _Floats
    reference_power: _Floats
    candidate_power: _Floats
    dot: _Floats
    reference_amax: _Floats
    broken: _Counts
    reference_broken: _Counts
    both_broken: _Counts


class ErrorAccumulator:
    """Compares one output of a candidate with the baseline's, batch by batch.

    >>> errors = ErrorAccumulator("logits")
    >>> _ = errors.add(np.array([[3.0, 4.0]]), np.array([[3.0, 4.5]]))
    >>> found = errors.result()
    >>> found.elements, found.max_abs, found.mean_abs, round(found.sqnr_db, 2)
    (2, 0.5, 0.25, 20.0)
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self._elements = self._pairs = 0
        self._broken = self._reference_broken = self._both_broken = 0
        self._abs_error = self._error_power = self._dot = 0.0
        self._reference_power = self._candidate_power = 0.0
        self._max_abs = self._reference_amax = 0.0
        self._rows_lost = self._rows_gained = 0
        self._columns = ColumnErrors()

    def add(self, reference: Array, candidate: Array) -> RowErrors | None:
        """Counts one batch.

        Args:
            reference: The baseline's output, of any shape and any real type.
            candidate: The candidate's, of the same shape. Only the number of rows may differ, or that of
                the boxes in [N, boxes, k], as where detections are lost: that is counted, and no figure is
                given then.

        Returns:
            The sums of each row; None where the number of rows differs.

        Raises:
            ValidationError: The shapes differ otherwise, or the values are not real numbers.
        """
        self._check(reference, candidate)
        if reference.shape != candidate.shape:
            lost = _lost(reference, candidate)
            self._rows_lost += max(lost, 0)
            self._rows_gained += max(-lost, 0)
            return None
        rows = row_errors(reference, candidate)
        self._fold(rows)
        self._columns.add(reference, candidate)
        return rows

    def _check(self, reference: Array, candidate: Array) -> None:
        for side, array in (("baseline", reference), ("candidate", candidate)):
            if array.dtype.kind not in "biuf":
                raise ValidationError(
                    f"Output {self.output!r} of the {side} holds {array.dtype}, "
                    "which is not a real number: it cannot be compared. Leave that output out of the model."
                )
        if reference.shape != candidate.shape and not _differ_by_rows(reference, candidate):
            raise ValidationError(
                f"Output {self.output!r} has shape {reference.shape} in the baseline "
                f"and {candidate.shape} in the candidate: they are not the same model, or were not "
                "given the same samples. Where its size depends on values, as NonZero's does, leave that "
                "output out of the model."
            )

    def _fold(self, rows: RowErrors) -> None:
        self._elements += int(rows.elements.sum())
        self._pairs += int(rows.pairs.sum())
        self._broken += int(rows.broken.sum())
        self._reference_broken += int(rows.reference_broken.sum())
        self._both_broken += int(rows.both_broken.sum())
        self._abs_error += float(rows.abs_error.sum())
        self._error_power += float(rows.error_power.sum())
        self._reference_power += float(rows.reference_power.sum())
        self._candidate_power += float(rows.candidate_power.sum())
        self._dot += float(rows.dot.sum())
        self._max_abs = max(self._max_abs, float(rows.max_abs.max(initial=0.0)))
        self._reference_amax = max(self._reference_amax, float(rows.reference_amax.max(initial=0.0)))

    def result(self) -> OutputError:
        """The figures over everything added so far."""
        verdict, note = self._verdict()
        known = self._pairs > 0 and verdict not in ("candidate not finite", "rows differ")
        cosine = _cosine(self._dot, self._reference_power, self._candidate_power)
        if verdict == "equal":
            cosine = 1.0
        return OutputError(
            output=self.output,
            elements=self._elements,
            max_abs=_finite(self._max_abs) if known else None,
            mean_abs=_finite(self._abs_error / self._pairs) if known else None,
            cosine=cosine if known else None,
            sqnr_db=_sqnr(self._reference_power, self._error_power) if known else None,
            reference_amax=_finite(self._reference_amax) if self._pairs else None,
            non_finite=self._broken,
            reference_non_finite=self._reference_broken,
            note=note,
            verdict=verdict,
            both_non_finite=self._both_broken,
            groups=self._columns.groups() if verdict == "differs" else (),
        )

    def _verdict(self) -> tuple[str, str]:
        """What kind of comparison it was, and what a reader must know of it."""
        if self._rows_lost or self._rows_gained:
            return "rows differ", (
                f"{counted(self._rows_lost, 'row[s]')} lost and "
                f"{counted(self._rows_gained, 'row[s]')} gained against the baseline: "
                "values of different rows cannot be compared"
            )
        only_candidate = self._broken - self._both_broken
        if only_candidate:
            return "candidate not finite", (
                f"{only_candidate} of {self._elements} values are NaN or infinite where the baseline's "
                "are finite: the error has no bound"
            )
        if self._reference_broken:
            both = self._both_broken
            return ("both not finite" if both else "baseline not finite"), (
                f"{self._reference_broken} of {self._elements} values are NaN or infinite in the baseline "
                f"({both} of them in the candidate too): the FP32 model is already broken; "
                f"the figures cover the other {self._pairs} values"
            )
        return self._finite_verdict()

    def _finite_verdict(self) -> tuple[str, str]:
        if not self._elements:
            return "equal", "empty on both sides"
        if not self._max_abs:
            zero = "" if self._reference_power else ", all zero"
            return "equal", f"no error at all{zero}; SQNR is infinite"
        if not math.isfinite(self._reference_power + self._candidate_power + self._error_power):
            return "differs", "values beyond 1e154: their squares overflow, so there is no SQNR"
        if not self._reference_power:
            return "differs", "the baseline is all zero: SQNR and cosine similarity have no reference"
        if not self._candidate_power:
            return "differs", "the candidate is all zero"
        return "differs", ""


def _differ_by_rows(reference: Array, candidate: Array) -> bool:
    """Whether there are more of what is found on one side: rows, or the boxes of a batch [N, boxes, k]."""
    if not reference.ndim == candidate.ndim >= 1:
        return False
    boxes = reference.ndim == 3 and reference.shape[::2] == candidate.shape[::2]
    return boxes or reference.shape[1:] == candidate.shape[1:]


def _lost(reference: Array, candidate: Array) -> int:
    """How many rows the candidate has less, or boxes of all samples of [N, boxes, k]."""
    if reference.shape[0] != candidate.shape[0]:
        return int(reference.shape[0] - candidate.shape[0])
    return int(reference.shape[0] * (reference.shape[1] - candidate.shape[1]))


def row_errors(reference: Array, candidate: Array) -> RowErrors:
    """Sums over each row of two arrays of one shape, a few rows at a time to bound memory."""
    left, right = np.atleast_1d(reference), np.atleast_1d(candidate)
    rows = left.shape[0]
    if not left.size:
        return _empty(rows)
    left, right = left.reshape(rows, -1), right.reshape(rows, -1)
    parts = [_block(left[part], right[part]) for part in _parts(rows, left.shape[1])]
    return RowErrors(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _parts(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // width)
    return (slice(start, start + step) for start in range(0, rows, step))


def _block(reference: Array, candidate: Array) -> tuple[Array, ...]:
    left, right = reference.astype(np.float64), candidate.astype(np.float64)
    left_fine, right_fine = np.isfinite(left), np.isfinite(right)
    fine = left_fine & right_fine
    error = _distance(reference, candidate, left, right, fine)
    left, right = np.where(fine, left, 0.0), np.where(fine, right, 0.0)
    with np.errstate(over="ignore"):  # float64 outputs beyond 1e154; the figure becomes None
        return (
            np.full(len(left), left.shape[1]),
            fine.sum(axis=1),
            error.sum(axis=1),
            error.max(axis=1),
            np.square(error).sum(axis=1),
            np.square(left).sum(axis=1),
            np.square(right).sum(axis=1),
            (left * right).sum(axis=1),
            np.abs(left).max(axis=1),
            (~right_fine).sum(axis=1),
            (~left_fine).sum(axis=1),
            (~left_fine & ~right_fine).sum(axis=1),
        )


def _distance(
    reference: Array, candidate: Array, left: _Floats, right: _Floats, fine: npt.NDArray[np.bool_]
) -> _Floats:
    """|candidate − reference|, 0 where either is not finite."""
    common = np.result_type(reference, candidate)
    if common.kind in "iu" and common.itemsize == 8:
        # Beyond 2^53 float64 would merge neighbours. Unsigned subtraction modulo 2^64 is exact.
        first, second = reference.astype(common), candidate.astype(common)
        high, low = np.maximum(first, second), np.minimum(first, second)
        exact: _Floats = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
        return exact
    with np.errstate(invalid="ignore", over="ignore"):
        error: _Floats = np.where(fine, np.abs(right - left), 0.0)
    return error


def _empty(rows: int) -> RowErrors:
    counts, floats = np.zeros(rows, np.int64), np.zeros(rows)
    sums = (floats,) * 7
    return RowErrors(counts, counts, *sums, counts, counts, counts)


def max_abs_error(reference: Array, candidate: Array) -> float | None:
    """Largest absolute error, max |candidate − reference|, in the values' unit.

    >>> max_abs_error(np.array([-128], np.int8), np.array([127], np.int8))
    255.0
    """
    return _compare(reference, candidate).max_abs


def mean_abs_error(reference: Array, candidate: Array) -> float | None:
    """Mean absolute error, (1/n) Σ |candidate − reference|, in the values' unit.

    >>> mean_abs_error(np.array([1.0, 2.0]), np.array([1.5, 2.0]))
    0.25
    """
    return _compare(reference, candidate).mean_abs


def cosine_similarity(reference: Array, candidate: Array) -> float | None:
    """Cosine similarity of two arrays as flat vectors, Σ r·c / (√Σ r² · √Σ c²).

    A zero vector has no direction: it counts as 0 against any other and as 1 against another zero
    vector.

    >>> cosine_similarity(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    0.7071067811865475
    >>> cosine_similarity(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    0.0
    """
    return _compare(reference, candidate).cosine


def sqnr_db(reference: Array, candidate: Array) -> float | None:
    """Signal to quantization noise ratio, 10·log10(Σ r² / Σ (c − r)²), in dB; larger is better.

    None where there is no error (it would be infinite) or no signal.

    >>> sqnr_db(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    20.0
    """
    return _compare(reference, candidate).sqnr_db


def _compare(reference: Array, candidate: Array) -> OutputError:
    errors = ErrorAccumulator("output")
    errors.add(reference, candidate)
    return errors.result()


def _cosine(dot: float, reference_power: float, candidate_power: float) -> float | None:
    if not reference_power or not candidate_power:
        return 1.0 if reference_power == candidate_power else 0.0
    value = dot / (math.sqrt(reference_power) * math.sqrt(candidate_power))
    return _finite(min(1.0, max(-1.0, value))) if math.isfinite(value) else None


def _sqnr(signal: float, noise: float) -> float | None:
    if not signal or not noise or not math.isfinite(signal) or not math.isfinite(noise):
        return None
    return 10.0 * (math.log10(signal) - math.log10(noise))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
