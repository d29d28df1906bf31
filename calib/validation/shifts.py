"""How far every figure moved between two results of the same samples, and whether chance explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.validation.alignment import Pair
from calib.validation.baseline import is_sqnr, sqnr_name
from calib.validation.changes import ROUNDING, figures_of, is_same
from calib.validation.corrections import Correction, adjust
from calib.validation.intervals import SEED, Floats, bootstrap_interval
from calib.validation.outcomes import hits_of, unpack_powers
from calib.validation.paired import PairedTable, difference_interval, mcnemar, permutation_test
from calib.validation.qualification import OutputShift, Shift
from calib.validation.resampling import paired_draws
from calib.validation.results import PrecisionRun, Results

__all__ = ["draw_difference", "find_shifts", "output_shifts", "sqnr_difference"]

_MANY = 5000
_DRAWS, _FEW_DRAWS = 9999, 1999

Hits = npt.NDArray[np.bool_]


def find_shifts(
    old: Results,
    new: Results,
    pairs: Sequence[Pair],
    noise: Mapping[tuple[str, str], float],
    alpha: float,
    correction: Correction,
) -> tuple[Shift, ...]:
    """Puts every figure of every run beside what it was.

    Shares of right answers have Tango's interval and McNemar's exact test, other figures of accuracy a paired
    bootstrap, the SQNR of an output the bootstrap interval over samples and a paired permutation test of each
    sample's error; the p-values are corrected together.

    Args:
        old: The old results.
        new: The new ones, of the same samples in the same order.
        pairs: The runs that both have.
        noise: (label, figure) → largest difference between builds of one model.
        alpha: Chance of calling any figure changed that is not.
        correction: "holm", "bonferroni" or "none".
    """
    found = [shift for pair in pairs for shift in _of_run(old, new, pair, noise)]
    known = [one.p_value for one in found if one.p_value is not None]
    adjusted = iter(adjust(known, correction))
    judged = (one if one.p_value is None else replace(one, p_adjusted=next(adjusted)) for one in found)
    directions = {
        (pair.new.label, metric.name): metric.higher_is_better
        for pair in pairs
        for metric in pair.new.metrics
    }
    return tuple(_with_status(one, alpha, directions.get((one.run, one.figure), True)) for one in judged)


def _of_run(old: Results, new: Results, pair: Pair, noise: Mapping[tuple[str, str], float]) -> list[Shift]:
    before, after = figures_of(pair.old), figures_of(pair.new)
    units = {metric.name: metric.unit for run in pair for metric in run.metrics}
    made = []
    for name in dict.fromkeys((*after, *before)):
        first, second = _finite(before.get(name)), _finite(after.get(name))
        unit = "dB" if is_sqnr(name) else units.get(name, "")
        difference = None if first is None or second is None else second - first
        spread = noise.get((pair.new.label, name))
        shift = Shift(pair.new.label, name, first, second, "", difference, noise=spread, unit=unit)
        if difference is None:
            made.append(replace(shift, status=_exactness(pair, name)))
        else:
            made.append(_tested(shift, old, new, pair))
    return made


def _exactness(pair: Pair, figure: str) -> str:
    """What to say of an SQNR that is infinite since there is no error; empty where that is not why."""
    before, after = (
        any(sqnr_name(one.output) == figure and one.verdict == "equal" for one in run.outputs) for run in pair
    )
    if before and after:
        return "same"
    return "no error before" if before else "no error now" if after else ""


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _tested(shift: Shift, old: Results, new: Results, pair: Pair) -> Shift:
    if any(sqnr_name(one.output) == shift.figure for one in pair.new.outputs):
        powers = _powers(pair, shift.figure, len(new.sample_ids))
        return shift if powers is None else replace(shift, **sqnr_difference(*powers))
    hits = _hits(old, pair.old, shift.figure), _hits(new, pair.new, shift.figure)
    if hits[0] is None or hits[1] is None:
        old_draws, new_draws = (run.draws.get(shift.figure) for run in (pair.old, pair.new))
        draws = paired_draws(old_draws, new_draws, pair.new.label)
        return shift if draws is None else replace(shift, **draw_difference(*draws))
    table = PairedTable.from_hits(hits[0], hits[1])
    interval = difference_interval(table)
    return replace(
        shift,
        low=_negated(interval.high),
        high=_negated(interval.low),
        p_value=mcnemar(table.only_baseline, table.only_candidate).p_value,
        method=f"{interval.method}; McNemar's exact test",
    )


def draw_difference(before: Floats, after: Floats) -> dict[str, Any]:
    """Interval and test of a figure's difference, from the same resamples of both versions.

    p is twice the smaller share of resamples on either side of no difference, (1 + k) / (resamples + 1).

    Args:
        before: The figure on each resample, shape [resamples].
        after: The same of the new version.

    >>> found = draw_difference(np.linspace(0.4, 0.5, 99), np.linspace(0.3, 0.4, 99))
    >>> round(found["high"], 3), found["p_value"]
    (-0.1, 0.02)
    """
    moved = after - before
    low, high = np.percentile(moved, (2.5, 97.5)).tolist()
    total = len(moved) + 1
    least = min(1 + int((moved <= 0).sum()), 1 + int((moved >= 0).sum()))
    method = f"paired bootstrap, {len(moved)} resamples"
    return {"low": low, "high": high, "p_value": min(1.0, 2 * least / total), "method": method}


def _negated(value: float | None) -> float | None:
    """Intervals are of a drop, before − after."""
    return None if value is None else -value


def _hits(results: Results, run: PrecisionRun, figure: str) -> Hits | None:
    """Right answers, or for "top1_agreement" those that are FP32's of the same results."""
    if figure != "top1_agreement":
        return hits_of(results, run, figure)
    reference = results.baseline
    if reference is None or reference.predictions is None or run.predictions is None:
        return None
    if len(reference.predictions) != len(run.predictions):
        return None
    same: Hits = np.equal(reference.predictions, run.predictions)
    return same


def _powers(pair: Pair, figure: str, count: int) -> tuple[Floats, Floats] | None:
    found = []
    for run in pair:
        output = next((one for one in run.outputs if sqnr_name(one.output) == figure), None)
        if output is None or not output.powers:
            return None
        found.append(unpack_powers(output.powers, count, f"{run.label} {output.output}"))
    return found[0], found[1]


def sqnr_difference(before: Floats, after: Floats) -> dict[str, Any]:
    """Interval and test of a difference of two SQNRs of the same samples, after − before, in dB.

    The interval is the bootstrap's over samples. The test exchanges a sample's two errors at random: would
    their sums be as far apart as they are?

    Args:
        before: Σ reference² and Σ error² of each sample, shape [2, samples].
        after: The same of the other version.

    Returns:
        "low", "high", "p_value" and "method".

    >>> power = np.full(8, 100.0)
    >>> found = sqnr_difference(np.stack([power, np.ones(8)]), np.stack([power, np.arange(2.0, 10.0)]))
    >>> found["p_value"]   # of 2⁸ exchanges two are as far apart
    0.0078125
    """

    def difference(signal: Any, noise: Any, signal2: Any, noise2: Any, axis: int = -1) -> Any:
        first, second = (
            np.log10(np.sum(power, axis=axis)) - np.log10(np.sum(error, axis=axis))
            for power, error in ((signal, noise), (signal2, noise2))
        )
        return 10.0 * (second - first)

    interval = bootstrap_interval([*before, *after], difference)
    draws = _DRAWS if before.shape[1] <= _MANY else _FEW_DRAWS
    test = permutation_test(before[1], after[1], resamples=draws, seed=SEED)
    return {
        "low": interval.low,
        "high": interval.high,
        "p_value": test.p_value,
        "method": f"{interval.method}; {test.method} of each sample's error",
    }


def _with_status(shift: Shift, alpha: float, higher_is_better: bool) -> Shift:
    if shift.status:
        return shift
    if shift.before is None or shift.after is None or shift.difference is None:
        both = shift.before is None and shift.after is None
        return replace(shift, status="not measured" if both else "new" if shift.before is None else "missing")
    if is_same(shift.before, shift.after, shift.unit):
        return replace(shift, status="same")
    if shift.noise is not None and abs(shift.difference) <= shift.noise * (1 + ROUNDING):
        return replace(shift, status="within noise")
    if shift.p_adjusted is None:
        return replace(shift, status="untested")
    if shift.p_adjusted >= alpha:
        return replace(shift, status="not significant")
    rose = shift.difference > 0
    return replace(shift, status="better" if rose == higher_is_better else "worse")


def output_shifts(pairs: Sequence[Pair]) -> tuple[OutputShift, ...]:
    """Errors of every output that both have, against FP32 of the same results."""
    found = []
    for old, new in pairs:
        before = {output.output: output for output in old.outputs}
        for output in new.outputs:
            first = before.get(output.output)
            if first is not None:
                found.append(
                    OutputShift(
                        new.label,
                        output.output,
                        (first.sqnr_db, output.sqnr_db),
                        (first.cosine, output.cosine),
                        (first.max_abs, output.max_abs),
                        (first.verdict, output.verdict),
                    )
                )
    return tuple(found)
