from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from task_judging import judged, numbered
from task_results import as_results
from test_report import report_results as made

from calib.errors import UsageError, ValidationError
from calib.validation import Results
from calib.validation.noninferiority import share_non_inferiority
from calib.validation.paired import PairedTable
from calib.validation.planning import pilot_table, plan_samples, required_samples


@pytest.mark.parametrize(
    ("margin", "rate", "drop"), [(0.005, 0.03, 0.0), (0.01, 0.05, 0.002), (0.02, 0.2, -0.01)]
)
def test_the_formula_with_the_variance_found_by_search(margin: float, rate: float, drop: float) -> None:
    lost, gained = (rate + drop) / 2, (rate - drop) / 2

    def loss(q: float) -> float:  # expected likelihood under the hypothesis that the drop is the margin
        return -(lost * np.log(q + margin) + gained * np.log(q) + (1 - rate) * np.log(1 - 2 * q - margin))

    q = minimize_scalar(
        loss, bounds=(1e-9, (1 - margin) / 2 - 1e-9), method="bounded", options={"xatol": 1e-12}
    ).x
    null = 2 * q + margin - margin**2
    reach = norm.ppf(0.95) * np.sqrt(null) + norm.ppf(0.9) * np.sqrt(rate - drop**2)
    expected = np.ceil((reach / (margin - drop)) ** 2)
    assert required_samples(margin, rate, expected_drop=drop, power=0.9) == pytest.approx(expected, abs=1)


def test_near_the_simple_formula_for_a_small_margin() -> None:
    # (z₀.₉₅ + z₀.₈)²·ψ/m², Lachenbruch's for equal shares.
    simple = (1.6449 + 0.8416) ** 2 * 0.03 / 0.005**2
    assert required_samples(0.005, 0.03) == pytest.approx(simple, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("margin", "rate", "drop", "power"), [(0.01, 0.03, 0.0, 0.8), (0.02, 0.06, 0.005, 0.9)]
)
def test_the_power_is_reached(margin: float, rate: float, drop: float, power: float) -> None:
    count = required_samples(margin, rate, expected_drop=drop, power=power)
    rng, runs = np.random.default_rng(0), 3000
    shares = [(rate + drop) / 2, (rate - drop) / 2, 1 - rate]
    draws = rng.multinomial(count, shares, size=runs)
    passed = sum(
        share_non_inferiority(PairedTable(int(rest), int(lost), int(gained), 0), margin).verdict == "pass"
        for lost, gained, rest in draws
    )
    # Three standard errors of a share of 3000 runs are 2.2 points.
    assert passed / runs == pytest.approx(power, abs=0.025)


def test_without_a_rate_the_worst_case_is_planned_for() -> None:
    plan = plan_samples(margin=0.005, baseline=0.76)
    assert plan.disagreement == pytest.approx(2 * 0.76 * 0.24)
    assert plan.source == "worst case: answers independent of each other"
    assert plan.samples == required_samples(0.005, 2 * 0.76 * 0.24)
    assert "pilot run" in plan.notes[0]


def test_a_rate_that_the_baseline_does_not_allow_is_doubted() -> None:
    plan = plan_samples(margin=0.005, baseline=0.99, disagreement=0.03)
    assert plan.notes == ("a baseline of 99% and equal accuracy allow at most 2% of the samples to disagree",)


class TestPilot:
    def test_its_disagreements_are_counted(self) -> None:
        # FP32 is wrong on samples 0 to 7, INT8 on 4 to 16: 4 became right, 9 became wrong.
        pilot = made.classifier()
        run, table = pilot_table(pilot)
        assert (run.label, table) == ("INT8", PairedTable(343, 9, 4, 4))
        plan = plan_samples(margin=0.01, pilot=pilot)
        assert plan.disagreement == 13 / 360
        assert plan.samples == required_samples(0.01, 13 / 360)
        assert plan.cautious_samples is not None
        assert plan.cautious_samples > plan.samples
        assert plan.source == "pilot: INT8 on 360 samples, 13 disagree"

    def test_int8_is_planned_for_where_fp16_disagrees_as_often(self) -> None:
        pilot = made.classifier()
        fp32, fp16, int8 = pilot.runs
        alike = replace(pilot, runs=(fp32, fp16, replace(int8, predictions=fp16.predictions)))
        assert pilot_table(alike)[0].label == "INT8"

    def test_a_named_run(self) -> None:
        plan = plan_samples(margin=0.01, pilot=made.classifier(), run="FP16")
        assert plan.disagreement == 0
        assert plan.notes == ("the pilot saw only 0 disagreements: plan with the cautious figure",)

    def test_pilots_that_cannot_be_used(self) -> None:
        with pytest.raises(ValidationError, match=r"no run 'INT4'.*FP16, INT8"):
            plan_samples(margin=0.01, pilot=made.classifier(), run="INT4")
        with pytest.raises(ValidationError, match="no candidate whose top1"):
            plan_samples(margin=0.01, pilot=made.regressor())
        cut = replace(made.classifier(), labels=(1, 2))
        with pytest.raises(ValidationError, match="360 answers and 2 labels for 360 samples"):
            plan_samples(margin=0.01, pilot=cut)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0.01}, "Give --pilot"),
        ({"margin": 0.0, "disagreement": 0.1}, "margin must lie above 0"),
        ({"margin": 0.01, "disagreement": 1.1}, "lies between 0% and 100%"),
        ({"margin": 0.01, "disagreement": 0.03, "expected_drop": 0.01}, "must be below the margin"),
        ({"margin": 0.05, "disagreement": 0.01, "expected_drop": 0.02}, "cannot come from answers"),
        ({"margin": 0.01, "disagreement": 0.03, "power": 1.0}, "Power lies between"),
        ({"margin": 0.01, "disagreement": 0.03, "metric": "map"}, "How far map varies"),
        ({"margin": 0.01, "baseline": 76}, "above 0% and up to 100%; got 7600%"),
        ({"margin": 0.01, "disagreement": 0.03, "pilot": made.classifier()}, "not both"),
        ({"margin": 1e-6, "disagreement": 0.03}, "a billion samples"),
    ],
)
def test_plans_that_cannot_be_made(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_samples(**options)  # type: ignore[arg-type]


class TestSpread:
    """Figures that are resampled: planned for by a pilot's own spread."""

    @staticmethod
    def regression(count: int = 400) -> tuple[Results, np.ndarray]:
        """Results, and by how much INT8's absolute error is above FP32's in each sample."""
        random = np.random.default_rng(2)
        labels = random.normal(size=count)
        fp32 = (labels + random.normal(0, 0.1, count)).astype(np.float32)
        int8 = (fp32 + random.normal(0, 0.05, count)).astype(np.float32)
        outputs = {"y": fp32[:, None]}, {"y": int8[:, None]}
        task = {"kind": "regression", "unit": "mm"}
        found = as_results(judged(task, numbered([float(one) for one in labels]), *outputs, batch=100))
        return found, np.abs(int8 - labels) - np.abs(fp32 - labels)

    def test_a_mean_needs_what_its_standard_deviation_says(self) -> None:
        pilot, rises = self.regression()
        plan = plan_samples(margin=0.005, pilot=pilot)
        assert (plan.metric, plan.unit, plan.higher_is_better) == ("MAE", "mm", False)
        assert plan.disagreement is None
        assert plan.spread == pytest.approx(rises.std() / 20, rel=0.06)  # √400; 1999 resamples: ±1.6 %
        # ((1.645 + 0.842)·σ/m)²
        expected = ((norm.ppf(0.95) + norm.ppf(0.8)) * rises.std() / 0.005) ** 2
        assert plan.samples == pytest.approx(expected, rel=0.12)
        assert plan.cautious_samples is not None
        assert plan.samples < plan.cautious_samples < 1.3 * plan.samples
        closer = plan_samples(margin=0.005, pilot=pilot, expected_drop=0.0025)
        assert closer.samples == pytest.approx(4 * plan.samples, abs=4)

    def test_four_times_the_pilot_halves_the_error_and_plans_the_same(self) -> None:
        few, many = (
            plan_samples(margin=0.01, metric="RMSE", pilot=self.regression(n)[0]) for n in (300, 1200)
        )
        assert few.spread is not None
        assert many.spread == pytest.approx(few.spread / 2, rel=0.15)
        assert many.samples == pytest.approx(few.samples, rel=0.3)

    def test_where_nothing_moved_their_number_alone_counts(self) -> None:
        pilot, _ = self.regression(60)
        same = replace(pilot, runs=(pilot.runs[0], replace(pilot.runs[1], draws=pilot.runs[0].draws)))
        plan = plan_samples(margin=0.01, metric="R2", pilot=same)
        value = next(one.value for one in pilot.runs[0].metrics if one.name == "R2")
        assert value is not None
        assert plan.samples == int(np.ceil(np.log(0.05) / np.log(1 - 0.01 / value)))
        assert (plan.spread, plan.cautious_samples) == (0.0, None)
        assert plan.notes[0].startswith("nothing moved in the pilot")

    def test_mistakes(self) -> None:
        pilot, _ = self.regression(60)
        with pytest.raises(
            ValidationError, match=r"no candidate whose mAP can .* planned for: MAE, RMSE, R2"
        ):
            plan_samples(margin=0.01, metric="mAP", pilot=pilot)
        with pytest.raises(ValidationError, match="no run 'INT4'"):
            plan_samples(margin=0.01, pilot=pilot, run="INT4")
        with pytest.raises(UsageError, match="How far mAP varies only a pilot tells"):
            plan_samples(margin=0.01, metric="mAP")
        with pytest.raises(UsageError, match=r"The expected drop, 0\.02, must be below the margin"):
            plan_samples(margin=0.01, pilot=pilot, expected_drop=0.02)
        with pytest.raises(UsageError, match="The margin must be above 0"):
            plan_samples(margin=0.0, pilot=pilot)
        with pytest.raises(UsageError, match="Power lies between"):
            plan_samples(margin=0.01, pilot=pilot, power=0.2)

    def test_few_samples_are_too_few_for_a_bootstrap(self) -> None:
        plan = plan_samples(margin=0.5, pilot=self.regression(60)[0])
        assert plan.samples == plan.cautious_samples == 30
        assert "too few for a bootstrap" in plan.notes[0]
