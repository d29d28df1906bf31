"""Whether the calibration set was large enough: how far the scales depend on its choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.calibrators.adequacy_result import Adequacy, State, TensorAdequacy, difference_in_words
from calib.calibrators.base import Calibrator
from calib.calibrators.histogram import GrowingHistogram
from calib.calibrators.magnitude import MagnitudeHistogram
from calib.calibrators.minmax import Maximum
from calib.calibrators.ranges import scale_of
from calib.errors import CalibrationError, UsageError
from calib.progress import track
from calib.wording import counted

__all__ = ["Adequacy", "State", "TensorAdequacy", "assess", "expected_half_difference"]

Floats = npt.NDArray[np.float64]
_Subset = tuple[int, ...]

_MIN_BLOCKS = 4
_MIN_RESAMPLES = 10
_FARTHEST = 16.0
"""Beyond this many times the samples an extrapolation says nothing."""

_MOST = 0.95
_ORDER = 3.0
"""Under chance alone the ordered halves differ this many times as much as mixed ones once in five."""

_SLOW = 2.0**0.25
"""Quarters over halves: √2 where differences fall as 1/√n. Below this the exponent is under a half of it."""


def expected_half_difference(observed: Sequence[float], standard_error: float) -> float:
    """Expected |ln(a / b)| of the scales of two disjoint halves of the samples.

    Two estimates are averaged. One is the mean of observed differences. The other comes from the
    standard error σ of ln(scale) of all n samples: a half has the variance 2σ², the difference of two
    halves 4σ², and a normal variable of standard deviation 2σ the mean absolute value 2σ·√(2/π)
    (folded normal: Leone, Nelson, Nottingham, Technometrics 3, 1961).

    Args:
        observed: Differences of some pairs of halves, at least one.
        standard_error: σ.

    >>> round(expected_half_difference([0.02, 0.04], 0.01), 4)  # (0.03 + 0.01 · 1.5958) / 2
    0.023
    """
    return float(np.mean(observed) + 2 * math.sqrt(2 / math.pi) * standard_error) / 2


def assess(
    blocks: Sequence[Calibrator[Any]],
    fresh: Callable[[], Calibrator[Any]],
    *,
    resamples: int = 20,
    seed: int = 0,
    tolerance: float = 0.05,
    samples: int | None = None,
    show: bool = False,
) -> Adequacy:
    """Says whether a calibration set was large enough, from calibrators of its blocks.

    Merging is exact, so any choice of blocks is the calibration of their batches. Compared are disjoint
    halves (every other block, which shows chance alone; the first against the second, which shows an
    order too), the first quarter and half with the whole, and resamples: as many blocks drawn with
    replacement, each drawing in order. Blocks are drawn and not samples because neighbours may be alike
    (block bootstrap: H. R. Künsch, Annals of Statistics 17, 1989; here the blocks do not overlap). The
    resamples' standard deviation is widened by √(K / (K − 1)), by which that of K drawn blocks falls
    short (B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 5).

    A tensor is settled if the halves of both kinds, and the expected ones, agree within the tolerance.
    For the others the number of samples is extrapolated, difference ∝ 1/√n, roughly. Percentiles and
    minima of a mean error behave like that, the range of least divergence need not: of normal values it
    follows the maximum, and has a standard deviation of 6 to 10 % for 10⁴ as for 6·10⁵ of them. So
    entropy is extrapolated only if quarters and halves of these samples bear it out: the root mean
    squares of their differences are as √2 to 1 for anything that averages. Min-max is the maximum: it
    grows with the samples for ever, the bootstrap is not consistent for it (P. J. Bickel, D. A. Freedman,
    Annals of Statistics 9, 1981), so that its spread only tells how much hangs on a single block, and
    nothing is extrapolated.

    All entropy blocks share the grid that the first batches opened, so what the choice of those batches
    changes by itself is not seen. There a part without a value above 1/2048 of that grid counts as zero.

    Time: about 15 + ``resamples`` computations of all ranges. Memory: one merged calibrator.

    Args:
        blocks: Calibrators of consecutive, equally large parts of the samples, in order; at least 4. Not
            changed.
        fresh: Makes an empty calibrator of their method and options.
        resamples: Number of bootstrap resamples, at least 10.
        seed: Seed of the resamples, 0 or more; the same one gives the same result.
        tolerance: Difference up to which a scale counts as settled, above 0 and below 1.
        samples: Number of samples in all blocks, for the words.
        show: Whether to show progress on standard error.

    Raises:
        UsageError: An argument is out of its bounds.
        CalibrationError: The blocks are of different methods, options or grids, or nothing was collected.
    """
    _check(blocks, resamples, seed, tolerance)
    names = list(dict.fromkeys(name for block in blocks for name in block.statistics))
    if not names:
        raise CalibrationError("No batches were collected: there is nothing to assess.")
    count = len(blocks)
    draws = np.sort(np.random.default_rng(seed).integers(count, size=(resamples, count)), axis=1)
    drawn = [tuple(draw) for draw in draws.tolist()]
    wanted = list(dict.fromkeys([*_parts(count).values(), *drawn]))
    scales = {
        subset: _scales([blocks[index] for index in subset], fresh, names)
        for subset in (track(wanted, len(wanted), "Assessing") if show else wanted)
    }
    parts = {key: scales[subset] for key, subset in _parts(count).items()}
    columns = _measured(parts, np.stack([scales[draw] for draw in drawn]), count)
    rows = [
        _row(
            name,
            {key: float(column[index]) for key, column in columns.items()},
            [_seen(block.statistics.get(name)) for block in blocks],
            tolerance,
        )
        for index, name in enumerate(names)
    ]
    rows.sort(key=lambda row: (row.settled, -row.difference))
    method = fresh().method
    factor, suggestion = _suggestion(rows, method, tolerance, samples)
    distinct = len(set(drawn))
    return Adequacy(
        method, samples, count, resamples, distinct, seed, tolerance, tuple(rows), factor, suggestion
    )


def _check(blocks: Sequence[Calibrator[Any]], resamples: int, seed: int, tolerance: float) -> None:
    if len(blocks) < _MIN_BLOCKS:
        raise UsageError(
            f"Assessing needs at least {_MIN_BLOCKS} blocks of batches, got {len(blocks)}. Take more samples "
            "or smaller batches."
        )
    if resamples < _MIN_RESAMPLES:
        raise UsageError(f"The number of resamples must be at least {_MIN_RESAMPLES}, got {resamples}.")
    if seed < 0:
        raise UsageError(f"The seed must be 0 or more, got {seed}.")
    if not 0 < tolerance < 1:
        raise UsageError(
            f"The tolerance must be a share above 0 and below 1, such as 0.05 for 5%, got {tolerance:.10g}."
        )


def _parts(count: int) -> dict[str, _Subset]:
    """The subsets of ``count`` blocks that are compared, by name."""

    def every(*remainders: int) -> _Subset:
        return tuple(index for index in range(count) if index % 4 in remainders)

    quarters = {f"quarter{k}": every(k) for k in range(4)}
    halves = {f"half{i}{j}": every(i, j) for i in range(4) for j in range(i + 1, 4)}
    everything = tuple(range(count))
    ordered = {
        "all": everything,
        "first_quarter": everything[: count // 4],
        "first": everything[: count // 2],
        "second": everything[count // 2 :],
    }
    return quarters | halves | ordered


def _scales(
    blocks: Iterable[Calibrator[Any]], fresh: Callable[[], Calibrator[Any]], names: Sequence[str]
) -> Floats:
    """Scale of every tensor from some blocks, in order; 0.0 where they have no values other than zero."""
    merged = fresh()
    for block in blocks:
        merged.merge(block)
    for name in [name for name, known in merged.statistics.items() if not _seen(known)[1]]:
        # A grid that was opened elsewhere would stand for a range although nothing fell on it.
        del merged.statistics[name]
    amax = merged.compute() if merged.statistics else {}
    return np.array([scale_of(amax.get(name, 0.0)) for name in names])


def _seen(known: object) -> tuple[bool, bool]:
    """Whether a statistic has any values, and any other than zero."""
    if isinstance(known, GrowingHistogram):
        return known.total > 0, bool(known.counts[1:].any())
    if isinstance(known, MagnitudeHistogram):
        return known.total > 0, known.amax > 0
    if isinstance(known, Maximum):
        return True, known.amax > 0  # it is made when its first values come
    return known is not None, known is not None


def _apart(one: Floats, other: Floats) -> Floats:
    """|ln(one / other)|, exactly 0 for equal scales, infinite where only one of them is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(one == other, 0.0, np.abs(np.log(one) - np.log(other)))


def _measured(parts: Mapping[str, Floats], resampled: Floats, count: int) -> dict[str, Floats]:
    """The numbers of `TensorAdequacy` by their names, each of shape (tensors,)."""
    pairs = [("02", "13"), ("01", "23"), ("03", "12")]
    halves = np.stack([_apart(parts[f"half{i}"], parts[f"half{j}"]) for i, j in pairs])
    quarters = np.stack(
        [_apart(parts[f"quarter{i}"], parts[f"quarter{j}"]) for i in range(4) for j in range(i)]
    )
    rises = np.stack([_apart(parts["all"], parts[f"half{i}"]) for pair in pairs for i in pair])
    falls = np.stack([parts["all"] < parts[f"half{i}"] for pair in pairs for i in pair])
    spread, error = _bootstrap(resampled, count)
    expected = [expected_half_difference(list(h), float(e)) for h, e in zip(halves.T, error, strict=True)]
    return {
        "scale": parts["all"],
        "first_quarter": parts["first_quarter"],
        "first_half": parts["first"],
        "even_odd": halves[0],
        "first_second": _apart(parts["first"], parts["second"]),
        "expected": np.array(expected),
        "spread": spread,
        "standard_error": error,
        "halves": np.sqrt(np.mean(halves**2, axis=0)),
        "quarters": np.sqrt(np.mean(quarters**2, axis=0)),
        "doubling": np.mean(np.where(falls, -rises, rises), axis=0),
    }


def _bootstrap(resampled: Floats, count: int) -> tuple[Floats, Floats]:
    """90 % range and standard error of ln(scale), from scales of shape (resamples, tensors)."""
    vanishing = (resampled == 0).any(axis=0) & (resampled > 0).any(axis=0)
    logs = np.log(np.where(resampled > 0, resampled, 1.0))
    low, high = np.quantile(logs, (0.05, 0.95), axis=0)
    error = np.std(logs, axis=0, ddof=1) * math.sqrt(count / (count - 1))
    # The mean of equal numbers need not be the same number, so their deviation need not be zero.
    error[np.ptp(logs, axis=0) == 0] = 0.0
    return np.where(vanishing, np.inf, high - low), np.where(vanishing, np.inf, error)


def _row(
    name: str,
    numbers: Mapping[str, float],
    seen: Sequence[tuple[bool, bool]],
    tolerance: float,
) -> TensorAdequacy:
    """One tensor's numbers, and whether it had values, and any other than zero, in each block."""

    def known(key: str) -> float | None:
        return numbers[key] if math.isfinite(numbers[key]) else None

    absent = sum(not any_values for any_values, _ in seen)
    return TensorAdequacy(
        tensor=name,
        state=_state(numbers, absent, tolerance),
        scale=numbers["scale"],
        first_quarter=numbers["first_quarter"],
        first_half=numbers["first_half"],
        even_odd=known("even_odd"),
        first_second=known("first_second"),
        expected=known("expected"),
        spread=known("spread"),
        standard_error=known("standard_error"),
        halves=known("halves"),
        quarters=known("quarters"),
        doubling=known("doubling"),
        blocks_zero=sum(any_values and not any_other for any_values, any_other in seen),
        blocks_absent=absent,
    )


def _state(numbers: Mapping[str, float], absent: int, tolerance: float) -> State:
    even_odd, first_second, expected = (numbers[k] for k in ("even_odd", "first_second", "expected"))
    if not math.isfinite(even_odd + first_second + expected):
        return "absent" if absent else "zero"
    if max(even_odd, first_second, expected) <= tolerance:
        return "settled"
    least = numbers["scale"] * math.exp(-tolerance)
    if max(numbers["first_quarter"], numbers["first_half"]) < least:
        return "growing"
    if even_odd <= tolerance < first_second and first_second > _ORDER * even_odd:
        return "order"
    return "spread"


def _suggestion(
    rows: Sequence[TensorAdequacy], method: str, tolerance: float, samples: int | None
) -> tuple[float | None, str]:
    """How many times as many samples are needed, if that can be told, and what to do in words."""
    moving = [row for row in rows if not row.settled]
    if not moving:
        apart = max(row.difference for row in rows)
        return 1.0, f"Enough: half of the samples gives the same scales within {difference_in_words(apart)}."
    comparable = [row for row in moving if row.expected is not None]
    factor, words = None, []
    if comparable and method == "minmax":
        words.append(_on_maxima(comparable, tolerance))
    elif comparable and method == "entropy" and _rate(comparable) < _SLOW:
        words.append(_on_slow(comparable))
    elif comparable:
        needed = [_factor(row, tolerance) for row in rows if row.expected is not None]
        factor = min(max(needed), _FARTHEST)
        words.append(_on_more(needed, samples))
    if 2 * sum(row.state == "order" for row in moving) >= len(moving):
        words.append("The order of the samples matters more than their number: shuffle them.")
    partial = len(moving) - len(comparable)
    if partial:
        words.append(
            f"{counted(partial, 'tensor[s] [is|are]')} zero or without values in a part of the "
            "samples: choose samples that "
            "reach them."
        )
    return factor, " ".join(words)


def _factor(row: TensorAdequacy, tolerance: float) -> float:
    """(expected difference / tolerance)², at least 1: difference ∝ 1/√n."""
    return 1.0 if row.settled else max(1.0, ((row.expected or 0.0) / tolerance) ** 2)


def _rate(rows: Sequence[TensorAdequacy]) -> float:
    """By how much quarters of the samples differ more than halves, in the median."""
    ratios = [row.quarters / row.halves for row in rows if row.quarters and row.halves]
    return float(np.median(ratios)) if ratios else math.inf


def _on_maxima(rows: Sequence[TensorAdequacy], tolerance: float) -> str:
    grown = float(np.mean([row.doubling or 0.0 for row in rows]))
    last = (
        "Min-max grows with every sample: the last doubling of their number added "
        f"{difference_in_words(grown)} to those that move."
    )
    if grown > tolerance:
        return f"{last} Rare large values decide: try percentile, or give many more samples."
    return f"{last} Twice as many samples may do; percentile settles sooner."


def _on_slow(rows: Sequence[TensorAdequacy]) -> str:
    quarters, halves = (
        difference_in_words(float(np.median([getattr(row, key) for row in rows])))
        for key in ("quarters", "halves")
    )
    return (
        f"More samples may not help: quarters of them differ by {quarters}, halves still by {halves}. "
        "Entropy follows the largest values here; percentile or mse would settle with more samples."
    )


def _on_more(needed: Sequence[float], samples: int | None) -> str:
    worst = max(needed)
    if worst == 1:
        return "Borderline: on average halves agree within the tolerance, but not in every comparison."
    most = float(np.quantile(needed, _MOST, method="inverted_cdf"))
    everything = f"{_amount(worst, samples)} would settle all (roughly, by 1/√n)."
    if most == 1 or most == worst:
        return everything
    return f"{_amount(most, samples)} would settle {_MOST * 100:.0f}% of the tensors. {everything}"


def _amount(factor: float, samples: int | None) -> str:
    beyond = factor > _FARTHEST
    if samples is None:
        return f"More than {_FARTHEST:.0f} times" if beyond else f"About {factor:.1f} times"
    if beyond:
        return f"More than {samples * _FARTHEST:.0f} samples"
    return f"About {_rounded_up(samples * factor)} samples"


def _rounded_up(number: float) -> int:
    """To two significant digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit
