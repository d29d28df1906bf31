"""What a comparison of two results files says: what changed, by how much, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from calib.validation.corrections import Correction
from calib.validation.verdicts import GateOutcome, Verdict

__all__ = [
    "Circumstance",
    "EngineShift",
    "Flip",
    "Flips",
    "LatencyShift",
    "OutputShift",
    "Qualification",
    "Shift",
]

Weight = Literal["subject", "doubt", "unfair"]


@dataclass(frozen=True)
class Circumstance:
    """Something that is not the same in both.

    Attributes:
        what: What it is: "TensorRT", "driver", "model", "calibration entropy", ….
        before: In the old results.
        after: In the new ones.
        weight: "subject": versions and machines, which the comparison may be about; "doubt": differences
            have more causes than a version; "unfair": the two did not answer the same questions.
        note: What follows from it; may be empty.
    """

    what: str
    before: str
    after: str
    weight: Weight
    note: str = ""


@dataclass(frozen=True)
class Shift:
    """One figure of one run, before and after.

    Attributes:
        run: Label of the run.
        figure: Name of the metric, or "SQNR of OUTPUT".
        before: In the old results; None where it was not measured.
        after: In the new ones.
        status: "same", "within noise", "better", "worse" (more than chance explains, after correction),
            "not significant", "untested" (nothing is known of each sample), "no error before" or "no error
            now" (an SQNR that is infinite), "new", "missing" or "not measured".
        difference: After − before; None where either is missing.
        low: Lower end of its interval, from the same samples.
        high: Upper end.
        confidence: The interval's confidence.
        p_value: Two-sided, of "there is no difference".
        p_adjusted: The same after the correction over all figures of all runs.
        method: How interval and p-value were made, with seeds.
        noise: Largest difference between builds of one model; None where it is not known.
        unit: "share", "dB", or "" for other figures.
    """

    run: str
    figure: str
    before: float | None
    after: float | None
    status: str
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    p_value: float | None = None
    p_adjusted: float | None = None
    method: str = ""
    noise: float | None = None
    unit: str = "share"


@dataclass(frozen=True)
class Flip:
    """A sample with another answer.

    Attributes:
        sample_id: The sample.
        label: Its class; None where it is not known.
        before: The class that the old run answers.
        after: The class that the new run answers.
        effect: "became wrong", "became right", or "changed" (wrong before and after, or no label).
        sqnr_db: SQNR of the sample's outputs against FP32 in the new run; None where it is not known.
    """

    sample_id: str
    label: int | None
    before: int
    after: int
    effect: str
    sqnr_db: float | None = None


@dataclass(frozen=True)
class Flips:
    """All answers of one run that are not the same.

    Attributes:
        run: Label of the run.
        samples: Samples compared.
        changed: Samples with another answer.
        became_wrong: Right before, wrong now; None without labels.
        became_right: Wrong before, right now.
        listed: The worst of them: those that became wrong first, of these the lowest SQNR first.
    """

    run: str
    samples: int
    changed: int
    became_wrong: int | None
    became_right: int | None
    listed: tuple[Flip, ...]


@dataclass(frozen=True)
class OutputShift:
    """Errors of one output against FP32 of the same results, before and after.

    Attributes:
        run: Label of the run.
        output: The output.
        sqnr_db: Before and after, in dB.
        cosine: Cosine similarity.
        max_abs: Largest absolute error.
        verdict: What the comparison with FP32 said: "differs", "equal", "candidate not finite", ….
    """

    run: str
    output: str
    sqnr_db: tuple[float | None, float | None]
    cosine: tuple[float | None, float | None]
    max_abs: tuple[float | None, float | None]
    verdict: tuple[str, str]


@dataclass(frozen=True)
class LatencyShift:
    """Latency of one run, before and after.

    Attributes:
        run: Label of the run.
        before_ms: p50 of the old run; None where it was not measured.
        after_ms: p50 of the new one.
        device: The GPU of both; empty where they cannot be compared.
        ratio: After divided by before; None where they cannot be compared.
        low: Lower end of its 95 % interval; None without the times of each batch.
        high: Upper end.
        method: How the interval was made.
        noise: Slowest divided by fastest build of one model; None where it is not known.
        note: Why there is no ratio, or what to know of it.
        host_bound: Whether launching takes so long that the host may be what was measured, before or after.
    """

    run: str
    before_ms: float | None
    after_ms: float | None
    device: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    noise: float | None = None
    note: str = ""
    host_bound: bool = False


@dataclass(frozen=True)
class EngineShift:
    """The engine of one run, before and after.

    Attributes:
        run: Label of the run.
        engine_bytes: Sizes.
        layers: Numbers of layers.
        int8_layers: Numbers of layers that compute in INT8.
        moved: ONNX nodes whose layer computes in another precision: name, before, after.
        known: Whether both engines tell which node computes in what.
    """

    run: str
    engine_bytes: tuple[int, int]
    layers: tuple[int, int]
    int8_layers: tuple[int, int]
    moved: tuple[tuple[str, str, str], ...] = ()
    known: bool = True


@dataclass(frozen=True)
class Qualification:
    """One model under two versions of something.

    Attributes:
        old: The old results: the file, or model, dataset and time.
        new: The new ones.
        model: Name of the model.
        dataset: Name of the dataset.
        samples: Samples that both answered.
        circumstances: What is not the same in both.
        shifts: Every figure of every run that both have.
        flips: Answers that are not the same.
        outputs: Errors of every output.
        latencies: Latency of the runs that were timed.
        engines: Engines.
        only_old: Runs that the new results do not have.
        only_new: Runs that the old results do not have.
        faults: Values that are not finite, and what was measured before and is not now.
        gates: Where a margin was given: non-inferiority of the new runs, and a failure for each fault.
        builds: Builds of one model that the noise is known from; 0 where it is not.
        alpha: Chance of a wrong verdict.
        correction: How p-values of several figures were corrected.
        allow_undecided: Whether undecided gates pass.
    """

    old: str
    new: str
    model: str
    dataset: str
    samples: int
    circumstances: tuple[Circumstance, ...]
    shifts: tuple[Shift, ...]
    flips: tuple[Flips, ...]
    outputs: tuple[OutputShift, ...]
    latencies: tuple[LatencyShift, ...]
    engines: tuple[EngineShift, ...]
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    gates: tuple[GateOutcome, ...] = ()
    builds: int = 0
    alpha: float = 0.05
    correction: Correction = "holm"
    allow_undecided: bool = False

    @property
    def worse(self) -> tuple[Shift, ...]:
        """Figures that fell by more than chance and noise explain."""
        return tuple(one for one in self.shifts if one.status == "worse")

    @property
    def better(self) -> tuple[Shift, ...]:
        """Figures that rose by more than chance and noise explain."""
        return tuple(one for one in self.shifts if one.status == "better")

    @property
    def verdict(self) -> Verdict | None:
        """Of all gates: "fail" where one failed, else "undecided" or "pass"; None without a margin."""
        verdicts = {one.verdict for one in self.gates}
        if not verdicts:
            return None
        if "fail" in verdicts or not verdicts & {"pass", "undecided"}:
            return "fail"
        return "undecided" if "undecided" in verdicts else "pass"

    @property
    def exit_code(self) -> int:
        """0 without a margin, or where every gate passes; else 1."""
        passed = self.verdict in (None, "pass") or (self.allow_undecided and self.verdict == "undecided")
        return 0 if passed else 1

    def to_json(self) -> str:
        """The record as strict JSON, indented, with its verdict."""
        return _ADAPTER.dump_json(_Summary(self.verdict, self), indent=1).decode("utf-8") + "\n"


@dataclass(frozen=True)
class _Summary:
    verdict: str | None
    comparison: Qualification


_ADAPTER = TypeAdapter(_Summary)
