"""The bootstrap of figures that are no mean of samples: mean average precision, mIoU, F1, R², correlations.

A resample says how often each unit (a sample, or a pair of samples) was drawn, and a figure is computed from
these weights. All runs of one validation are judged on the same resamples, so that the difference of two
figures is resampled by subtracting their draws.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from calib.errors import ValidationError
from calib.validation.intervals import RESAMPLES, SEED, Floats, Interval
from calib.validation.metric_records import Draws

__all__ = [
    "FEW_RESAMPLES",
    "Distribution",
    "Statistic",
    "bca_ends",
    "distribution",
    "draw_weights",
    "pack_draws",
    "paired_draws",
    "resample_count",
    "shortened",
    "unpack_draws",
]

_CHUNK = 1 << 22
_MOST_WORK = 4e9
FEW_RESAMPLES = 499
"""Where one is a lot of work, and in baselines, which shall be small."""

_BCA_UNITS = 2000
_BCA_WORK = 4e8
_LINE = 76


class Statistic(Protocol):
    """Figures as a function of how often each unit was drawn.

    Attributes:
        names: Names of the figures.
        classes: Class numbers that have a figure of their own.
        units: Number of units.
        work: About how many numbers one evaluation touches.
    """

    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def classes(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def units(self) -> int: ...  # noqa: D102
    @property
    def work(self) -> int: ...  # noqa: D102

    def __call__(self, weights: Floats) -> Floats:
        """The figures, then those of the classes.

        Args:
            weights: Shape [draws, units].

        Returns:
            Shape [draws, names and classes]; NaN where a draw has no such figure.
        """
        ...


def draw_weights(units: int, resamples: int, seed: int = SEED, rows: int = _CHUNK) -> Iterator[Floats]:
    """How often each unit was drawn in each resample.

    Args:
        units: Number of units; as many are drawn in each resample, with replacement.
        resamples: Number of resamples.
        seed: Seed of the draws, which do not depend on ``rows``.
        rows: Most resamples in one array.

    Yields:
        Shape [some resamples, units].

    >>> [weights.sum(axis=1).tolist() for weights in draw_weights(3, 2)]
    [[3.0, 3.0]]
    """
    random = np.random.default_rng(seed)
    rows = max(1, min(rows, _CHUNK // max(1, units)))
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = random.integers(0, units, (count, units))
        drawn += units * np.arange(count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units).astype(np.float64)


def resample_count(work: int) -> int:
    """Number of resamples: fewer where a single one is a lot of work.

    >>> resample_count(1000), resample_count(10**8)
    (1999, 499)
    """
    return RESAMPLES if work * RESAMPLES <= _MOST_WORK else FEW_RESAMPLES


@dataclass(frozen=True)
class Distribution:
    """What the bootstrap found of one run.

    Attributes:
        names: Names of the figures.
        values: The figures of all units, shape [figures].
        draws: The figures of each resample, shape [resamples, figures].
        classes: Class numbers that have a figure of their own.
        class_values: Shape [classes].
        class_draws: Shape [resamples, classes].
        left_out: The figures without each unit, shape [units, figures]; None where that is too much work.
        units: Number of units.
        seed: Seed of the draws.
        biased: Figures that are systematically higher or lower for fewer units, such as mAP. The correction
            for that has no place in a difference, in which it cancels: its interval is of percentiles.
    """

    names: tuple[str, ...]
    values: Floats
    draws: Floats
    classes: tuple[int, ...]
    class_values: Floats
    class_draws: Floats
    left_out: Floats | None
    units: int
    seed: int
    biased: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a figure is one of these."""
        return name in self.names

    def interval(self, name: str, confidence: float = 0.95) -> Interval:
        """The interval of a figure."""
        column = self.names.index(name)
        left_out = None if self.left_out is None else self.left_out[:, column]
        return self._interval(self.values[column], self.draws[:, column], left_out, confidence)

    def drop_interval(self, baseline: Distribution, name: str, confidence: float = 0.95) -> Interval:
        """The interval of the baseline's figure minus this one, on the same resamples."""
        mine, theirs = self.names.index(name), baseline.names.index(name)
        left_out = None
        if self.left_out is not None and baseline.left_out is not None and name not in self.biased:
            left_out = baseline.left_out[:, theirs] - self.left_out[:, mine]
        value = baseline.values[theirs] - self.values[mine]
        draws = baseline.draws[:, theirs] - self.draws[:, mine]
        return self._interval(value, draws, left_out, confidence)

    def _interval(self, value: float, draws: Floats, left_out: Floats | None, confidence: float) -> Interval:
        if self.units < 2:
            note = "one sample: its spread is not known" if self.units else "no samples: nothing was measured"
            return Interval(None, None, confidence, "none", note)
        if not np.isfinite(value):
            return Interval(None, None, confidence, "none", "the figure itself is not finite")
        if not np.isfinite(draws).all():
            return Interval(None, None, confidence, "none", "some resamples have no finite figure")
        if bool((draws == draws[0]).all()) and abs(draws[0] - value) <= 1e-12 * max(1.0, abs(value)):
            note = f"all {len(draws)} resamples are alike: the bootstrap sees no spread"
            return Interval(float(value), float(value), confidence, "no spread", note)
        made = f"bootstrap, {len(draws)} resamples, seed {self.seed}"
        ends = None if left_out is None else bca_ends(value, draws, left_out, confidence)
        if ends is not None:
            return Interval(*ends, confidence, f"BCa {made}")
        low, high = np.percentile(draws, [50 * (1 - confidence), 50 * (1 + confidence)])
        return Interval(float(low), float(high), confidence, f"percentile {made}")

    def class_drops(self, baseline: Distribution) -> tuple[Floats, Floats]:
        """Of each class: baseline minus this run, and its standard error over the resamples; NaN for none."""
        drops = baseline.class_values - self.class_values
        spread = baseline.class_draws - self.class_draws
        known = np.isfinite(spread)
        count = known.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(known, spread, 0.0).sum(axis=0) / count
            square = np.where(known, spread - mean, 0.0) ** 2
            error = np.sqrt(square.sum(axis=0) / (count - 1))
        return drops, np.where(count > 1, error, np.nan)

    @cached_property
    def packed(self) -> dict[str, Draws]:
        """The draws of each figure as results keep them."""
        return {
            name: Draws(self.seed, self.units, pack_draws(self.draws[:, column]))
            for column, name in enumerate(self.names)
            if np.isfinite(self.draws[:, column]).all()
        }


def distribution(statistic: Statistic, resamples: int, seed: int = SEED) -> Distribution:
    """Resamples the figures of a run.

    Args:
        statistic: The figures.
        resamples: Number of resamples, the same for every run that it shall be compared with.
        seed: Seed of the draws.
    """
    units, figures = statistic.units, len(statistic.names)
    rows = max(1, _CHUNK // max(1, statistic.work))
    values = statistic(np.ones((1, units)))[0]
    drawn = [statistic(weights) for weights in draw_weights(units, resamples, seed, rows)] if units else []
    draws = np.concatenate(drawn) if drawn else np.empty((0, len(values)))
    few = 1 < units <= _BCA_UNITS and units * statistic.work <= _BCA_WORK
    return Distribution(
        names=statistic.names,
        values=values[:figures],
        draws=draws[:, :figures],
        classes=statistic.classes,
        class_values=values[figures:],
        class_draws=draws[:, figures:],
        left_out=_left_out(statistic, rows)[:, :figures] if few else None,
        units=units,
        seed=seed,
        biased=getattr(statistic, "biased", ()),
    )


def _left_out(statistic: Callable[[Floats], Floats], rows: int) -> Floats:
    units: int = statistic.units  # type: ignore[attr-defined]
    rows = max(1, min(rows, _CHUNK // units))
    parts = []
    for start in range(0, units, rows):
        index = np.arange(start, min(start + rows, units))
        weights = np.ones((len(index), units))
        weights[np.arange(len(index)), index] = 0.0
        parts.append(statistic(weights))
    return np.concatenate(parts)


def bca_ends(
    value: float, draws: Floats, left_out: Floats, confidence: float = 0.95
) -> tuple[float, float] | None:
    """The ends of the bias-corrected and accelerated interval.

    With z₀ = Φ⁻¹(share of draws below the value, half of those equal), u the value without each unit,
    a = Σ(ū − u)³ / 6·(Σ(ū − u)²)^1.5 and z of either end, the percentile is Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z)))
    (Efron, JASA 82, 1987; as in ``scipy.stats.bootstrap``, which takes samples in place of weights).

    Args:
        value: The figure.
        draws: Of each resample, shape [resamples].
        left_out: The figure without each unit, shape [units].
        confidence: Confidence of the interval.

    Returns:
        Both ends; None where a unit's influence is not finite, or all are alike.
    """
    from scipy.special import ndtr, ndtri

    below = float((draws < value).mean() + (draws <= value).mean()) / 2
    distance = left_out.mean() - left_out
    square = float((distance**2).sum())
    if not np.isfinite(square) or not square or not 0 < below < 1:
        return None
    bias, acceleration = ndtri(below), float((distance**3).sum()) / (6 * square**1.5)
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        moved = bias + ndtri(tail)
        ends.append(float(np.percentile(draws, 100 * ndtr(bias + moved / (1 - acceleration * moved)))))
    return (ends[0], ends[1]) if np.isfinite(ends).all() else None


def pack_draws(draws: Floats) -> tuple[str, ...]:
    """Packs draws as little-endian float32 in base64, in lines of 76 characters.

    >>> pack_draws(np.array([0.5, 1.0]))
    ('AAAAPwAAgD8=',)
    """
    text = base64.b64encode(np.asarray(draws, "<f4").tobytes()).decode("ascii")
    return tuple(text[start : start + _LINE] for start in range(0, len(text), _LINE))


def unpack_draws(lines: Sequence[str], source: str = "draws") -> Floats:
    """Reads what ``pack_draws`` wrote.

    Args:
        lines: The lines.
        source: What they belong to, for messages.

    Raises:
        ValidationError: They are not base64 of whole, finite numbers.

    >>> unpack_draws(("AAAAPwAAgD8=",)).tolist()
    [0.5, 1.0]
    """
    try:
        values = np.frombuffer(base64.b64decode("".join(lines), validate=True), "<f4").astype(np.float64)
    except (binascii.Error, ValueError) as error:
        raise ValidationError(
            f"{source}: the packed draws cannot be read: {error}. Make the file again."
        ) from error
    if not np.isfinite(values).all():
        raise ValidationError(f"{source}: the packed draws are not finite. Make the file again.")
    return values


def paired_draws(baseline: Draws | None, candidate: Draws | None, label: str) -> tuple[Floats, Floats] | None:
    """The draws of a figure in two runs, where both were judged on the same resamples.

    Args:
        baseline: One run's; None where it has none.
        candidate: The other's.
        label: What they belong to, for messages.

    Raises:
        ValidationError: The draws cannot be read.
    """
    if baseline is None or candidate is None:
        return None
    if (baseline.seed, baseline.units) != (candidate.seed, candidate.units):
        return None
    first = unpack_draws(baseline.values, f"baseline of {label}")
    second = unpack_draws(candidate.values, label)
    # Resamples are drawn one after another, so that those of the shorter list are the first of the longer.
    count = min(len(first), len(second))
    return (first[:count], second[:count]) if count else None


def shortened(draws: Draws) -> Draws:
    """The first resamples of a figure, as many as baselines keep."""
    values = unpack_draws(draws.values)[:FEW_RESAMPLES]
    return Draws(draws.seed, draws.units, pack_draws(values))
