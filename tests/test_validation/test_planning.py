from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from test_report import report_results as made

from calib.errors import UsageError, ValidationError
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
    assert plan.notes == (
        "a baseline of 99 % and equal accuracy allow at most 2 % of the samples to disagree",
    )


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
        ({"margin": 0.01, "disagreement": 1.1}, "lies between 0 % and 100 %"),
        ({"margin": 0.01, "disagreement": 0.03, "expected_drop": 0.01}, "must be below the margin"),
        ({"margin": 0.05, "disagreement": 0.01, "expected_drop": 0.02}, "cannot come from answers"),
        ({"margin": 0.01, "disagreement": 0.03, "power": 1.0}, "Power lies between"),
        ({"margin": 0.01, "disagreement": 0.03, "metric": "map"}, "Unknown metric 'map'"),
        ({"margin": 0.01, "baseline": 76}, "above 0 % and up to 100 %; got 7600 %"),
        ({"margin": 0.01, "disagreement": 0.03, "pilot": made.classifier()}, "not both"),
        ({"margin": 1e-6, "disagreement": 0.03}, "a billion samples"),
    ],
)
def test_plans_that_cannot_be_made(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_samples(**options)  # type: ignore[arg-type]
