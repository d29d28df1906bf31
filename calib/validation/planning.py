"""How many samples a non-inferiority test needs, by disagreement or by a pilot's spread."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calib.errors import UsageError, ValidationError
from calib.validation.intervals import share_interval
from calib.validation.outcomes import SHARE_METRICS, hits_of
from calib.validation.paired import PairedTable
from calib.validation.results import PrecisionRun, Results
from calib.validation.spread_planning import LEAST_SAMPLES, pilot_spread, samples_for_spread
from calib.wording import counted

__all__ = ["SamplePlan", "pilot_table", "plan_samples", "required_samples"]

_MOST = 10**9
_FEW_UNITS = 50


@dataclass(frozen=True)
class SamplePlan:
    """A number of paired samples, and what it rests on. All rates are shares between 0 and 1.

    Margin and drop are in the unit of the figure, which for shares is a share too.

    Attributes:
        samples: Paired samples that are needed.
        cautious_samples: The same at the upper end of the pilot's disagreement rate (95 % Wilson); None
            without a pilot.
        metric: What is to be judged.
        margin: The largest drop that is allowed.
        expected_drop: The true drop that the plan allows for.
        disagreement: Share of samples on which just one precision is right; None of other figures.
        source: Where the disagreement rate or the spread came from.
        power: Chance that the test passes where the true drop is the expected one.
        alpha: Chance that it passes where the true drop is the margin.
        pilot_samples: Samples of the pilot; None without one.
        notes: What to know of the figures.
        spread: Standard error of the drop on the pilot's samples, of figures that are resampled; else None.
        unit: "share", or the figure's unit.
        higher_is_better: Direction of the figure.
    """

    samples: int
    cautious_samples: int | None
    metric: str
    margin: float
    expected_drop: float
    disagreement: float | None
    source: str
    power: float
    alpha: float
    pilot_samples: int | None = None
    notes: tuple[str, ...] = ()
    spread: float | None = None
    unit: str = "share"
    higher_is_better: bool = True


def required_samples(
    margin: float,
    disagreement: float,
    *,
    expected_drop: float = 0.0,
    power: float = 0.8,
    alpha: float = 0.05,
) -> int:
    """Paired samples for a one-sided non-inferiority test of a share by Tango's score statistic.

    n = ((z₁₋α·√V₀ + z_power·√V₁) / (m − δ))². With the disagreement rate ψ and the expected drop δ:
    p10 = (ψ + δ)/2, p01 = (ψ − δ)/2, V₁ = ψ − δ². V₀ = 2q + m(1 − m) is the variance that the test assumes
    at the margin m, q being the root of ``score_statistic`` with these rates in place of counts
    (Nam, Biometrics 53, 1997, pp. 1422-1430; Liu et al., Statistics in Medicine 21, 2002, pp. 231-245).

    Args:
        margin: m, the largest drop that is allowed, as a share.
        disagreement: ψ, share of samples on which just one precision is right.
        expected_drop: δ, the true drop that is expected; below the margin.
        power: Chance that the test passes where the true drop is δ.
        alpha: Chance that it passes where the true drop is the margin.

    Raises:
        UsageError: A figure is out of range, or the expected drop is not below the margin.

    >>> required_samples(0.005, 0.03)   # with V₀ = V₁ = ψ it would be (1.645 + 0.842)²·0.03/0.005² = 7420
    7544
    """
    from scipy.stats import norm

    _check_rates(margin, disagreement, expected_drop, power, alpha)
    gained, total = (disagreement - expected_drop) / 2, disagreement
    linear = (2 - expected_drop) * margin - total
    root = math.sqrt(linear**2 + 8 * gained * margin * (1 - margin))
    null_variance = (root - linear) / 2 + margin * (1 - margin)
    variance = disagreement - expected_drop**2
    reach = float(norm.ppf(1 - alpha)) * math.sqrt(null_variance) + float(norm.ppf(power)) * math.sqrt(
        variance
    )
    return max(1, math.ceil((reach / (margin - expected_drop)) ** 2))


def _check_rates(
    margin: float, disagreement: float, expected_drop: float, power: float, alpha: float
) -> None:
    if not 0 < margin < 1:
        raise UsageError(f"The margin must lie above 0 and below 100 points; got {100 * margin:g} points.")
    if not 0 <= disagreement <= 1:
        raise UsageError(f"A disagreement rate lies between 0% and 100%; got {100 * disagreement:g}%.")
    if not abs(expected_drop) <= disagreement:
        raise UsageError(
            f"A drop of {100 * expected_drop:g} points cannot come from answers that disagree on "
            f"{100 * disagreement:g}% of the samples. Give a smaller drop or a larger disagreement."
        )
    if not expected_drop < margin:
        raise UsageError(
            f"The expected drop, {100 * expected_drop:g} points, must be below the margin, {100 * margin:g} "
            "points: no number of samples shows that a model is better than it is."
        )
    if not 0.5 <= power < 1 or not 0 < alpha < 0.5:
        raise UsageError(
            f"Power lies between 0.5 and 1, alpha between 0 and 0.5; got {power:g} and {alpha:g}."
        )
    if margin - expected_drop < 1 / math.sqrt(_MOST):
        raise UsageError("The margin is so close to the expected drop that a billion samples do not do.")


def pilot_table(
    pilot: Results, metric: str = "top1", run: str | None = None
) -> tuple[PrecisionRun, PairedTable]:
    """The disagreement table of a validation run that was made before.

    Args:
        pilot: Its results, with labels.
        metric: "top1" or "top5".
        run: Label of the candidate; None takes the one that disagrees most with the baseline.

    Raises:
        ValidationError: The results hold no right and wrong answers of that metric, or no such run.
    """
    baseline = pilot.baseline
    reference = None if baseline is None else hits_of(pilot, baseline, metric)
    candidates = [one for one in pilot.runs if one.role != "baseline" and run in (None, one.label)]
    tables = [
        (one, PairedTable.from_hits(reference, hits))
        for one in candidates
        if reference is not None and (hits := hits_of(pilot, one, metric)) is not None
    ]
    if not tables:
        known = ", ".join(one.label for one in pilot.runs if one.role != "baseline") or "none"
        wanted = "candidate" if run is None else f"run {run!r}"
        raise ValidationError(
            f"The pilot has no {wanted} whose {metric} answers can be compared with the baseline's (its "
            f"candidates: {known}). A pilot is the results.json of `calib validate` on labelled data."
        )
    # Of runs that disagree alike the one that a gate is about: INT8 rather than FP16.
    return max(tables, key=lambda pair: (pair[1].disagreements, pair[0].precision == "int8"))


def plan_samples(
    *,
    margin: float,
    metric: str | None = None,
    baseline: float | None = None,
    disagreement: float | None = None,
    pilot: Results | None = None,
    run: str | None = None,
    expected_drop: float = 0.0,
    power: float = 0.8,
    alpha: float = 0.05,
) -> SamplePlan:
    """Plans a validation that can tell whether a drop stays below a margin. All rates are shares.

    Shares of right answers are planned for by how often the precisions disagree, any other figure (mAP, mIoU,
    RMSE, …) by how far its drop varies over the resamples of a pilot.

    Args:
        margin: The largest drop that is allowed: 0.005 is half a percentage point; of figures that are no
            share in their unit.
        metric: The figure: "top1", "mAP", …; None takes the one that speaks for the pilot's task, or "top1".
        baseline: Share of right answers of the baseline. Without a disagreement rate and a pilot the worst
            case is planned for: answers that are right independently of each other, ψ = 2p(1 − p).
        disagreement: Share of samples on which just one precision is right.
        pilot: Results of an earlier run, to take the disagreement rate from.
        run: The pilot's candidate; None takes the one that disagrees most.
        expected_drop: The true drop that is expected.
        power: Chance that the test passes where the true drop is the expected one.
        alpha: Chance that it passes where the true drop is the margin.

    Raises:
        UsageError: Figures are missing, given twice or out of range.
        ValidationError: The pilot cannot be used.
    """
    if metric is None:
        metric = "top1" if pilot is None else pilot.judged_by
    if pilot is None and metric not in SHARE_METRICS:
        raise UsageError(
            f"How far {metric} varies only a pilot tells: give --pilot with the results.json of a small run. "
            f"Without one there are plans for {', '.join(SHARE_METRICS)}."
        )
    if disagreement is not None and pilot is not None:
        raise UsageError("Give a disagreement rate or a pilot run, not both.")
    if baseline is not None and not 0 < baseline <= 1:
        raise UsageError(f"A baseline accuracy lies above 0% and up to 100%; got {100 * baseline:g}%.")
    if pilot is not None and not _has_hits(pilot, metric):
        return _by_spread(pilot, metric, run, margin, expected_drop, power, alpha)
    rate, upper, source, table = _disagreement(metric, baseline, disagreement, pilot, run)

    def needed(psi: float) -> int:
        return required_samples(margin, psi, expected_drop=expected_drop, power=power, alpha=alpha)

    # A pilot may have seen fewer disagreements than the expected drop takes.
    used = rate if table is None else max(rate, abs(expected_drop))
    return SamplePlan(
        samples=needed(used),
        cautious_samples=None if upper is None else needed(max(upper, used)),
        metric=metric,
        margin=margin,
        expected_drop=expected_drop,
        disagreement=used,
        source=source,
        power=power,
        alpha=alpha,
        pilot_samples=None if table is None else table.count,
        notes=_notes(used, baseline, table, disagreement),
    )


def _has_hits(pilot: Results, metric: str) -> bool:
    return any(hits_of(pilot, one, metric) is not None for one in pilot.runs)


def _by_spread(
    pilot: Results,
    metric: str,
    run: str | None,
    margin: float,
    expected_drop: float,
    power: float,
    alpha: float,
) -> SamplePlan:
    spread = pilot_spread(pilot, metric, run)
    samples, cautious = samples_for_spread(spread, margin, expected_drop, power, alpha)
    notes = ["nothing moved in the pilot: so many samples of which none moves"] if not spread.error else []
    if samples == LEAST_SAMPLES:
        notes.append(f"fewer than {LEAST_SAMPLES} samples are too few for a bootstrap")
    if spread.units < _FEW_UNITS:
        notes.append(
            f"the pilot has only {counted(spread.units, 'sample[s] or pair[s]')}: plan with the "
            "cautious figure"
        )
    return SamplePlan(
        samples=samples,
        cautious_samples=cautious,
        metric=metric,
        margin=margin,
        expected_drop=expected_drop,
        disagreement=None,
        source=(
            f"pilot: {spread.run.label} on {counted(spread.samples, 'sample[s]')}, "
            f"{spread.resamples} resamples"
        ),
        power=power,
        alpha=alpha,
        pilot_samples=spread.samples,
        notes=tuple(notes),
        spread=spread.error,
        unit=spread.metric.unit,
        higher_is_better=spread.metric.higher_is_better,
    )


def _disagreement(
    metric: str,
    baseline: float | None,
    disagreement: float | None,
    pilot: Results | None,
    run: str | None,
) -> tuple[float, float | None, str, PairedTable | None]:
    """The rate, its upper end, where it came from, and the pilot's table."""
    if pilot is not None:
        chosen, table = pilot_table(pilot, metric, run)
        upper = share_interval(table.disagreements, table.count).high
        source = (
            f"pilot: {chosen.label} on {counted(table.count, 'sample[s]')}, "
            f"{counted(table.disagreements, 'disagree[s|]')}"
        )
        return table.disagreements / max(1, table.count), upper, source, table
    if disagreement is not None:
        return disagreement, None, "given", None
    if baseline is None:
        raise UsageError(
            "How often the precisions disagree decides how many samples are needed. Give --pilot with the "
            "results.json of a small run, or --disagreement, or at least --baseline for the worst case."
        )
    return 2 * baseline * (1 - baseline), None, "worst case: answers independent of each other", None


def _notes(
    rate: float, baseline: float | None, table: PairedTable | None, given: float | None
) -> tuple[str, ...]:
    notes = []
    if baseline is not None and rate > 2 * min(baseline, 1 - baseline) + 1e-12:
        notes.append(
            f"a baseline of {100 * baseline:g}% and equal accuracy allow at most "
            f"{200 * min(baseline, 1 - baseline):g}% of the samples to disagree"
        )
    if given is None and table is None:
        notes.append(
            "quantized models mostly agree with their baseline: a pilot run of some hundred samples usually "
            "shows a tenth of this disagreement, and as much fewer samples"
        )
    if table is not None and table.disagreements < 10:
        notes.append(f"the pilot saw only {table.disagreements} disagreements: plan with the cautious figure")
    return tuple(notes)
