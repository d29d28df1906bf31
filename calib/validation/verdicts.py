"""What gates say: a verdict each, and one for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from calib.validation.corrections import Correction, adjust
from calib.validation.noninferiority import decide

__all__ = ["Change", "CheckReport", "GateOutcome", "Verdict", "corrected"]

Verdict = Literal["pass", "fail", "undecided", "not measured", "new"]
"""“not measured”: null in the baseline and now. “new”: null in the baseline, a number now."""


@dataclass(frozen=True)
class GateOutcome:
    """One gate of one run.

    Attributes:
        gate: Which: "max_drop", …, or "integrity".
        run: Label of the run; empty where it is about all of them.
        subject: The figure or output that was judged.
        against: What it was compared with: "FP32", "FP16" or "baseline"; empty where it was not.
        verdict: What came out.
        reason: Why, in one sentence.
        limit: The threshold in words; empty for integrity.
        value: What was judged, in the threshold's unit; None where nothing was measured.
        low: Lower bound of it; None where there is none.
        high: Upper bound.
        confidence: One-sided confidence of each bound.
        threshold: The threshold.
        unit: "share", "dB", "cosine", "ratio" or "MB".
        method: How bounds and p-values were made.
        p_value: Of "the threshold is not kept"; small where it surely is. None without a test.
        p_worse: Of "the threshold is kept"; small where it surely is not.
        p_adjusted: ``p_value`` after the correction for several judgements.
        p_worse_adjusted: ``p_worse`` after it.
        note: What else to know; may be empty.
        noise: Largest difference between builds of one model, of latencies the largest ratio; None where it
            is not known.
        builds: Number of those builds; 0 where it is not known.
    """

    gate: str
    run: str
    subject: str
    against: str
    verdict: Verdict
    reason: str
    limit: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    threshold: float | None = None
    unit: str = ""
    method: str = ""
    p_value: float | None = None
    p_worse: float | None = None
    p_adjusted: float | None = None
    p_worse_adjusted: float | None = None
    note: str = ""
    noise: float | None = None
    builds: int = 0

    @property
    def name(self) -> str:
        """What the gate is called: unique in a report.

        >>> GateOutcome("max_drop", "INT8", "top1", "FP32", "pass", "").name
        'max_drop top1: INT8 against FP32'
        """
        what = f"{self.gate} {self.subject}".strip()
        run = f": {self.run}" if self.run else ""
        return f"{what}{run}" + (f" against {self.against}" if self.against else "")


def corrected(
    outcomes: tuple[GateOutcome, ...], correction: Correction, alpha: float
) -> tuple[GateOutcome, ...]:
    """Corrects the p-values of all gates that have a test, and judges those gates anew.

    Args:
        outcomes: Gates that were judged one by one.
        correction: "holm", "bonferroni" or "none".
        alpha: Chance of a wrong verdict, on each side, of all of them together.
    """
    tested = [one for one in outcomes if one.p_value is not None and one.p_worse is not None]
    better = iter(adjust([one.p_value for one in tested if one.p_value is not None], correction))
    worse = iter(adjust([one.p_worse for one in tested if one.p_worse is not None], correction))
    return tuple(
        _judged(one, next(better), next(worse), alpha, correction if len(tested) > 1 else "none")
        if one.p_value is not None and one.p_worse is not None
        else one
        for one in outcomes
    )


def _judged(
    one: GateOutcome, p_value: float, p_worse: float, alpha: float, correction: Correction
) -> GateOutcome:
    verdict: Verdict = decide(p_value, p_worse, alpha)
    note = one.note
    if verdict != one.verdict and correction != "none":
        added = f"{one.verdict} by itself, {verdict} after {correction.capitalize()}'s correction"
        note = f"{note}; {added}" if note else added
    return replace(one, verdict=verdict, p_adjusted=p_value, p_worse_adjusted=p_worse, note=note)


@dataclass(frozen=True)
class Change:
    """One figure of one run, now and in the baseline.

    Attributes:
        run: Label of the run.
        figure: Name of the metric, or "SQNR of OUTPUT".
        before: In the baseline; None where it was not measured.
        after: Now; None where it was not measured.
        status: "same", "better", "worse", "not significant", "within noise", "new", "missing", "no error
            now", "no error before" (an SQNR that is infinite) or "not measured".
        low: Lower end of the 95 % interval of before − after, from the same samples; None without one.
        high: Upper end.
        noise: Largest difference between rebuilds of one model; None where it is not known.
        unit: "share", "dB", or the unit of a figure that is none.
    """

    run: str
    figure: str
    before: float | None
    after: float | None
    status: str
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    unit: str = "share"


@dataclass(frozen=True)
class CheckReport:
    """What ``calib.check`` found.

    Attributes:
        results: Which results were judged: the file, or model and dataset.
        baseline: The stored baseline; empty without one.
        outcomes: Every gate.
        changes: Every figure against the stored baseline.
        allow_undecided: Whether undecided gates let the check pass.
        alpha: Chance of a wrong verdict, on each side.
        correction: How several judgements were corrected.
        warnings: What to doubt.
    """

    results: str
    baseline: str
    outcomes: tuple[GateOutcome, ...]
    changes: tuple[Change, ...] = ()
    allow_undecided: bool = False
    alpha: float = 0.05
    correction: Correction = "holm"
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of all: "fail" where a gate failed or none was decided, else "undecided" or "pass"."""
        gates = [one.verdict for one in self.outcomes if one.gate != "integrity"]
        if any(one.verdict == "fail" for one in self.outcomes):
            return "fail"
        if "undecided" in gates:
            return "undecided"
        return "pass" if "pass" in gates else "fail"

    @property
    def passed(self) -> bool:
        """Whether the check lets the model through."""
        return self.verdict == "pass" or (self.allow_undecided and self.verdict == "undecided")

    @property
    def exit_code(self) -> int:
        """0 passed, 1 not."""
        return 0 if self.passed else 1

    def count(self, verdict: Verdict) -> int:
        """Number of gates with a verdict."""
        return sum(one.verdict == verdict for one in self.outcomes)

    def to_json(self) -> str:
        """The report as strict JSON, indented, with its verdict."""
        return _SUMMARY.dump_json(_Summary(self.verdict, self.passed, self), indent=1).decode("utf-8") + "\n"


@dataclass(frozen=True)
class _Summary:
    verdict: str
    passed: bool
    report: CheckReport


_SUMMARY = TypeAdapter(_Summary)
