"""Gates of outputs, latency and engines: SQNR, cosine, latency ratio, share of INT8 layers, engine size."""

from __future__ import annotations

import math
from collections.abc import Iterator

from calib.errors import UsageError
from calib.validation.baseline import measured_latency, timed_device
from calib.validation.changes import ROUNDING
from calib.validation.gate_case import Case
from calib.validation.latency_ratios import latency_ratio
from calib.validation.results import Latency, LatencyRatio, OutputError, PrecisionRun
from calib.validation.speed_records import HOST_DOUBT
from calib.validation.thresholds import plain
from calib.validation.verdicts import GateOutcome, Verdict

__all__ = ["judge_engine_size", "judge_int8_share", "judge_latency", "judge_outputs"]

_OTHER_RUN = "measured in different runs: clocks and load may differ, and there is no interval"
_HOST_BOUND = f"launching takes so long that {HOST_DOUBT}"


def judge_outputs(case: Case) -> tuple[GateOutcome, ...]:
    """Judges "min_sqnr" and "min_cosine": every output, or the one that the rule names.

    Raises:
        UsageError: The rule names an output that there is not.
    """
    wanted = case.rule.output
    chosen = [one for one in case.run.outputs if wanted in ("", one.output)]
    if not chosen and wanted and case.run.outputs:
        known = ", ".join(one.output for one in case.run.outputs)
        raise UsageError(f"{case.rule.gate}: there is no output {wanted!r}. The outputs are: {known}.")
    if not chosen:
        reason = "nothing was measured: the results compare no output with FP32's"
        return (case.outcome("fail", reason, subject=wanted),)
    judge = _sqnr if case.rule.gate == "min_sqnr" else _cosine
    return tuple(
        one
        for output in chosen
        for one in (_incomparable(case, output) or judge(case, output), *_groups(case, output))
    )


def _groups(case: Case, output: OutputError) -> Iterator[GateOutcome]:
    """Columns that are far smaller than others, each judged by itself: the whole would hide them."""
    decibels = case.rule.gate == "min_sqnr"
    for group in output.groups[1:]:
        value = group.sqnr_db if decibels else group.cosine
        largest = output.groups[0].reference_amax
        size = f"columns of up to ±{plain(group.reference_amax)} beside ±{plain(largest)}"
        subject = f"{output.output} columns {group.columns}"
        if value is None:
            equal = not group.max_abs
            reason = f"{size}: no error" if equal else f"{size}: no SQNR"
            yield case.outcome("pass" if equal else "fail", reason, subject=subject)
            continue
        figure = f"SQNR {plain(value)} dB, without an interval" if decibels else f"cosine {value:.6f}"
        verdict: Verdict = "pass" if value >= case.rule.threshold.value else "fail"
        yield case.outcome(verdict, f"{size}: {figure}", subject=subject, value=value)


def _incomparable(case: Case, output: OutputError) -> GateOutcome | None:
    if not output.elements:
        return case.outcome("fail", "nothing was measured: the output is empty", subject=output.output)
    if output.verdict in ("candidate not finite", "rows differ"):
        return case.outcome("fail", output.note or output.verdict, subject=output.output)
    if output.verdict == "equal":
        return case.outcome("pass", "every value equals FP32's", subject=output.output)
    return None


def _sqnr(case: Case, output: OutputError) -> GateOutcome:
    least, value = case.rule.threshold.value, output.sqnr_db
    if value is None or not math.isfinite(value):
        return case.outcome("fail", f"no SQNR: {output.note or 'not finite'}", subject=output.output)
    low, high = output.sqnr_low, output.sqnr_high
    if low is None or high is None:
        verdict: Verdict = "pass" if value >= least else "fail"
        reason = f"SQNR {plain(value)} dB, without an interval"
        return case.outcome(verdict, reason, subject=output.output, value=value)
    return case.outcome(
        "pass" if low >= least else "fail" if high < least else "undecided",
        f"SQNR {plain(value)} dB (95% interval over samples: {plain(low)} to {plain(high)} dB)",
        subject=output.output,
        value=value,
        low=low,
        high=high,
        confidence=0.975,
        method=output.sqnr_method or "",
    )


def _cosine(case: Case, output: OutputError) -> GateOutcome:
    value = output.cosine
    if value is None or not math.isfinite(value):
        return case.outcome("fail", f"no cosine: {output.note or 'not finite'}", subject=output.output)
    verdict: Verdict = "pass" if value >= case.rule.threshold.value else "fail"
    return case.outcome(verdict, f"cosine similarity {value:.6f}", subject=output.output, value=value)


def judge_latency(case: Case) -> GateOutcome:
    """Judges "max_latency_ratio": medians measured on one GPU in one run, or on the same GPU as the baseline.

    Simulated figures are refused: they say nothing of TensorRT's speed.
    """
    ours = measured_latency(case.run)
    precision = case.rule.against or "fp32"
    against = case.against if case.baseline is not None else precision.upper()
    refusal = _refusal(case, case.run)
    if refusal or ours is None:
        return case.outcome("fail", refusal, subject="latency", against=against)
    if case.baseline is not None:
        return _latency_of_baseline(case, ours)
    peers = [one for one in case.results.runs if one.precision == precision and one is not case.run]
    peer = next((one for one in peers if one.runner == case.run.runner), None)
    if peer is None:
        reason = f"there is no {against} run on {case.run.runner} to divide by"
        return case.outcome("fail", reason, subject="latency", against=against)
    refusal, theirs = _refusal(case, peer), measured_latency(peer)
    if refusal or theirs is None:
        return case.outcome("fail", refusal, subject="latency", against=against)
    here, there = timed_device(case.results, case.run), timed_device(case.results, peer)
    if here != there:
        reason = f"another device: {case.run.label} ran on {here}, {peer.label} on {there}"
        return case.outcome("fail", reason, subject="latency", against=against)
    if theirs.batch_size != ours.batch_size:
        reason = f"batches of {ours.batch_size} cannot be compared with batches of {theirs.batch_size}"
        return case.outcome("fail", reason, subject="latency", against=against)
    return _ratio(case, ours, theirs, peer.label, _interval(case, peer, ours, theirs))


def _refusal(case: Case, run: PrecisionRun) -> str:
    if run.latency is None:
        return f"the latency of {run.label} was not measured"
    if run.simulated or run.latency.simulated:
        return f"refused: the latency of {run.label} is of a simulation and says nothing of TensorRT's speed"
    if not timed_device(case.results, run):
        where = f", but on {run.latency.device}" if run.latency.device else ", as far as the results say"
        return f"refused: the latency of {run.label} was not measured on a GPU{where}"
    return ""


def _latency_of_baseline(case: Case, ours: Latency) -> GateOutcome:
    assert case.baseline is not None
    stored, here = case.stored, timed_device(case.results, case.run)
    if stored is None or stored.median_ms is None:
        return case.outcome("fail", "the baseline has no measured latency of this run", subject="latency")
    # A baseline that does not say where: engines run nowhere but on a GPU, other software may.
    unsaid = case.baseline.environment.get("gpu") if stored.runner == "tensorrt" else None
    device = stored.device or unsaid
    if not here or device != here:
        reason = f"another device: {here or 'unknown'} now, {device or 'none'} in the baseline"
        return case.outcome("fail", reason, subject="latency")
    if stored.batch_size != ours.batch_size:
        reason = f"batches of {ours.batch_size} now, of {stored.batch_size} in the baseline"
        return case.outcome("fail", reason, subject="latency")
    ratio = ours.median_ms / stored.median_ms
    return case.outcome(
        "pass" if ratio <= case.rule.threshold.value * (1 + ROUNDING) else "fail",
        f"p50 {plain(ours.median_ms)} ms, {plain(stored.median_ms)} ms in the baseline: {plain(ratio)} times",
        subject="latency",
        value=ratio,
        note=f"{_OTHER_RUN}; {_HOST_BOUND}" if ours.host_bound else _OTHER_RUN,
        noise=stored.latency_noise,
        builds=case.builds,
    )


def _interval(case: Case, peer: PrecisionRun, ours: Latency, theirs: Latency) -> LatencyRatio:
    """The ratio that the results hold, or one from the rounds, which timed both in turn."""
    for known in case.results.ratios:
        if (known.candidate, known.against) == (case.run.label, peer.label):
            return known
    if not ours.times_ms or len(ours.times_ms) != len(theirs.times_ms):
        ratio = ours.median_ms / theirs.median_ms
        return LatencyRatio(case.run.label, peer.label, ratio, None, None, method="no interval: other rounds")
    return latency_ratio(case.run.label, peer.label, ours.times_ms, theirs.times_ms)


def _ratio(case: Case, ours: Latency, theirs: Latency, peer: str, interval: LatencyRatio) -> GateOutcome:
    most, value = case.rule.threshold.value, ours.median_ms / theirs.median_ms
    figures = f"p50 {plain(ours.median_ms)} ms, {peer} {plain(theirs.median_ms)} ms: {plain(value)} times"
    low, high = interval.low, interval.high
    if low is None or high is None:
        verdict: Verdict = "pass" if value <= most else "fail"
        reason = f"{figures}, without an interval"
    else:
        verdict = "pass" if high <= most else "fail" if low > most else "undecided"
        reason = f"{figures} (95% interval {plain(low)} to {plain(high)})"
    return case.outcome(
        verdict,
        reason,
        subject="latency",
        against=peer,
        value=value,
        low=low,
        high=high,
        confidence=(1 + interval.confidence) / 2,
        method=interval.method,
        note=_HOST_BOUND if ours.host_bound or theirs.host_bound else "",
    )


def judge_int8_share(case: Case) -> GateOutcome:
    """Judges "min_int8_share": the part of the engine's layers that compute in INT8."""
    engine = case.run.engine
    if engine is None or not engine.layers:
        return case.outcome("fail", _no_engine(case), subject="layers", against="")
    share = engine.int8_layers / engine.layers
    return case.outcome(
        "pass" if share >= case.rule.threshold.value else "fail",
        f"{engine.int8_layers} of {engine.layers} layers compute in INT8",
        subject="layers",
        against="",
        value=share,
    )


def judge_engine_size(case: Case) -> GateOutcome:
    """Judges "max_engine_mb": the engine's size in megabytes of 10⁶ bytes."""
    engine = case.run.engine
    if engine is None or not engine.engine_bytes:
        return case.outcome("fail", _no_engine(case), subject="engine", against="")
    size = engine.engine_bytes / 1e6
    return case.outcome(
        "pass" if size <= case.rule.threshold.value else "fail",
        f"the engine has {plain(size)} MB",
        subject="engine",
        against="",
        value=size,
    )


def _no_engine(case: Case) -> str:
    return f"nothing was measured: {case.run.label} ran on {case.run.runner}, not as a TensorRT engine"
