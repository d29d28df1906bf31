"""How many samples a gate of a resampled figure needs, such as mAP or RMSE: from a pilot's own resamples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calib.errors import UsageError, ValidationError
from calib.validation.intervals import Floats
from calib.validation.resampling import paired_draws
from calib.validation.results import Metric, PrecisionRun, Results

__all__ = ["LEAST_SAMPLES", "Spread", "pilot_spread", "samples_for_spread"]

LEAST_SAMPLES = 30
"""Of fewer samples a bootstrap says little."""


@dataclass(frozen=True)
class Spread:
    """How far a drop varies on a pilot's samples.

    Attributes:
        run: The candidate.
        error: Standard error of the drop over the resamples, in the figure's unit.
        units: What was resampled: so many samples, or pairs of samples.
        samples: Samples of the pilot.
        resamples: Number of resamples.
        metric: The candidate's figure.
        whole: The baseline's figure, or 1 for shares: what a drop is a part of.
    """

    run: PrecisionRun
    error: float
    units: int
    samples: int
    resamples: int
    metric: Metric
    whole: float


def pilot_spread(pilot: Results, metric: str, run: str | None = None) -> Spread:
    """The spread of a figure's drop in a validation run that was made before.

    Args:
        pilot: Its results.
        metric: A figure that was resampled.
        run: Label of the candidate; None takes the one whose drop varies most.

    Raises:
        ValidationError: The results hold no resamples of that figure on both sides, or no such run.
    """
    baseline = pilot.baseline
    candidates = [one for one in pilot.runs if one.role != "baseline" and run in (None, one.label)]
    found = [
        _spread(pilot, baseline, one, metric, pair)
        for one in candidates
        if baseline is not None
        and (pair := paired_draws(baseline.draws.get(metric), one.draws.get(metric), one.label)) is not None
    ]
    if not found:
        labels = ", ".join(one.label for one in pilot.runs if one.role != "baseline") or "none"
        names = dict.fromkeys(name for one in pilot.runs for name in (*one.outcomes, *one.draws))
        known = ", ".join(name for name in names if not name.endswith("_agreement")) or "none"
        wanted = "candidate" if run is None else f"run {run!r}"
        raise ValidationError(
            f"The pilot has no {wanted} whose {metric} can be compared with the baseline's (its candidates: "
            f"{labels}; figures that can be planned for: {known}). A pilot is the results.json of "
            "`calib validate` on labelled data."
        )
    return max(found, key=lambda one: one.error)


def _spread(
    pilot: Results, baseline: PrecisionRun, run: PrecisionRun, metric: str, pair: tuple[Floats, Floats]
) -> Spread:
    figure = next(one for one in run.metrics if one.name == metric)
    before = next((one.value for one in baseline.metrics if one.name == metric), None)
    drops = pair[0] - pair[1]
    return Spread(
        run=run,
        error=float(np.std(drops, ddof=1)) if len(drops) > 1 else 0.0,
        units=run.draws[metric].units,
        samples=len(pilot.sample_ids),
        resamples=len(drops),
        metric=figure,
        whole=1.0 if figure.unit == "share" or not before else abs(before),
    )


def samples_for_spread(
    spread: Spread, margin: float, expected_drop: float, power: float, alpha: float
) -> tuple[int, int | None]:
    """Samples for a one-sided test of a drop whose standard error falls as 1/√n.

    n = N·((z₁₋α + z_power)·s/(m − δ))² with the pilot's N samples and standard error s; cautiously with the
    upper end of s, s²·(N − 1)/χ²₀.₀₂₅(N − 1), of the 95 % interval of a variance. Where nothing moved in the
    pilot it takes ln α / ln(1 − m) samples of which none moves, m being the part that the margin is.

    Args:
        spread: What the pilot says.
        margin: The largest drop that is allowed, in the figure's unit.
        expected_drop: The true drop that is expected.
        power: Chance that the test passes where the true drop is the expected one.
        alpha: Chance that it passes where the true drop is the margin.

    Returns:
        The number, at least ``LEAST_SAMPLES``, and the cautious one; None where nothing moved.

    Raises:
        UsageError: A figure is out of range.
    """
    from scipy.stats import chi2, norm

    if not 0.5 <= power < 1 or not 0 < alpha < 0.5:
        raise UsageError(
            f"Power lies between 0.5 and 1, alpha between 0 and 0.5; got {power:g} and {alpha:g}."
        )
    if not margin > 0:
        raise UsageError(f"The margin must be above 0; got {margin:g}.")
    if not expected_drop < margin:
        raise UsageError(
            f"The expected drop, {expected_drop:g}, must be below the margin, {margin:g}: no number of "
            "samples shows that a model is better than it is."
        )
    share = min(margin / spread.whole, 1.0)
    if not spread.error:
        return (math.ceil(math.log(alpha) / math.log(1 - share)) if share < 1 else 1), None
    reach = float(norm.ppf(1 - alpha) + norm.ppf(power)) / (margin - expected_drop)
    needed = spread.samples * (reach * spread.error) ** 2
    freedom = spread.units - 1
    widening = freedom / float(chi2.ppf(0.025, freedom))
    return max(LEAST_SAMPLES, math.ceil(needed)), max(LEAST_SAMPLES, math.ceil(needed * widening))
