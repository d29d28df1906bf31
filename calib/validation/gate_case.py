"""One rule and one run: what a gate judges, and the reference that it is judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.validation.baseline import Baseline, BaselineFigure, BaselineRun
from calib.validation.gate_rules import Rule
from calib.validation.intervals import Floats
from calib.validation.outcomes import hits_of, unpack_hits
from calib.validation.resampling import paired_draws
from calib.validation.results import Metric, PrecisionRun, Results
from calib.validation.thresholds import parse_threshold
from calib.validation.verdicts import GateOutcome, Verdict

__all__ = ["Case", "fitted", "has_two_sides"]


@dataclass(frozen=True)
class Case:
    """One gate of one run.

    Attributes:
        results: What is judged.
        run: The run.
        rule: The gate.
        baseline: The stored baseline where that is the reference; None where FP32 of the results is.
        alpha: Chance of a wrong verdict, on each side.
    """

    results: Results
    run: PrecisionRun
    rule: Rule
    baseline: Baseline | None = None
    alpha: float = 0.05

    @property
    def against(self) -> str:
        """What the reference is called."""
        return "FP32" if self.baseline is None else "baseline"

    @property
    def reference(self) -> PrecisionRun:
        """The FP32 run of the same results, which integrity demands."""
        return next(run for run in self.results.runs if run.role == "baseline")

    @property
    def stored(self) -> BaselineRun | None:
        """The same run in the stored baseline."""
        return None if self.baseline is None else self.baseline.find(self.run)

    @property
    def builds(self) -> int:
        """Builds that the noise of the stored baseline is known from; 0 where it is not."""
        return 0 if self.stored is None else self.stored.builds or 0

    def metric(self, name: str) -> Metric | None:
        """A figure of the run."""
        return next((one for one in self.run.metrics if one.name == name), None)

    def reference_figure(self, name: str) -> BaselineFigure | None:
        """The reference's figure of that name."""
        if self.stored is not None:
            return self.stored.metrics.get(name)
        found = next((one for one in self.reference.metrics if one.name == name), None)
        if found is None or self.baseline:
            return None
        higher = found.higher_is_better
        return BaselineFigure(found.value, note=found.note, unit=found.unit, higher_is_better=higher)

    def hits(self, name: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None:
        """Right and wrong answers of reference and run; None where either has none."""
        ours = hits_of(self.results, self.run, name)
        if self.baseline is None:
            theirs = hits_of(self.results, self.reference, name)
        elif self.stored is None or name not in self.stored.outcomes:
            theirs = None
        else:
            packed, label = self.stored.outcomes[name], f"baseline {self.run.label} {name}"
            theirs = unpack_hits(packed, self.baseline.samples, label)
        return None if ours is None or theirs is None else (theirs, ours)

    def draws(self, name: str) -> tuple[Floats, Floats] | None:
        """The figure of reference and run on the same resamples; None where either has none."""
        if self.baseline is None:
            theirs = self.reference.draws.get(name)
        else:
            theirs = None if self.stored is None else self.stored.draws.get(name)
        return paired_draws(theirs, self.run.draws.get(name), f"{self.run.label} {name}")

    def outcome(self, verdict: Verdict, reason: str, *, subject: str = "", **more: Any) -> GateOutcome:
        """An outcome of this gate and run; ``more`` are fields of ``GateOutcome``."""
        fields: dict[str, Any] = {
            "against": self.against,
            "limit": self.rule.limit,
            "threshold": self.rule.threshold.value,
            "unit": self.rule.threshold.unit,
            "note": self.rule.threshold.warning,
        }
        return GateOutcome(
            self.rule.gate, self.run.label, subject, verdict=verdict, reason=reason, **{**fields, **more}
        )


def has_two_sides(rule: Rule) -> bool:
    """Whether a rule is against the stored baseline unless it says otherwise."""
    return rule.gate in ("max_drop", "max_relative_drop", "worst_class")


def fitted(rule: Rule, results: Results) -> Rule:
    """A rule with the figure that it is about, and its threshold in that figure's unit.

    Args:
        rule: As the user gave it.
        results: What it is to judge.

    Raises:
        UsageError: The threshold cannot be meant in that unit.
    """
    if not has_two_sides(rule):
        return rule
    name = rule.metric or results.judged_by
    unit = next((one.unit for run in results.runs for one in run.metrics if one.name == name), "share")
    threshold, wanted = rule.threshold, "share" if unit == "share" else "number"
    if rule.gate == "max_drop" and threshold.unit != wanted:
        threshold = parse_threshold(threshold.given, f"--max-drop {name}", wanted)
    return replace(rule, metric=name, threshold=threshold)
