"""The report's first words: what each precision costs and gains."""

from __future__ import annotations

from collections.abc import Iterator

from calib.report import numbers
from calib.report.changes import by_chance, changed_answers
from calib.report.engines import int8_sentence, tells_precisions
from calib.report.merge import Merged, Row, Source, fault_of
from calib.report.methods import calibration_findings
from calib.report.metrics import (
    interval_text,
    loss_interval_text,
    loss_text,
    sentence_start,
    value_text,
    wording,
)
from calib.report.speed import Pace, pace_against
from calib.report.text import visible
from calib.validation.integrity import check_integrity
from calib.validation.results import Metric, OutputError
from calib.wording import inflected

__all__ = ["banner", "headline", "warnings"]

_SIMULATION = "says nothing of TensorRT's speed"


def headline(merged: Merged) -> tuple[tuple[str, str], ...]:
    """A lead and a sentence for every run, baselines first in their source; then the better calibration."""
    runs = tuple((row.label, _sentence(merged, row)) for row in merged.rows)
    return (*runs, *calibration_findings(merged))


def _sentence(merged: Merged, row: Row) -> str:
    parts = [_accuracy(merged, row), _outputs(row), _faults(row), _speed(merged, row), _engine(row)]
    return " ".join(part.strip() for part in parts if part)


def _accuracy(merged: Merged, row: Row) -> str:
    name = row.source.results.judged_by
    metric = row.metric(name)
    if metric is None or metric.value is None:
        return _agreement(row) + _unmeasured(metric)
    text = f"{wording(name).phrase} {value_text(metric)}{_interval(metric)}"
    if row.is_baseline or metric.drop is None:
        role = "the baseline; " if row.is_baseline else ""
        return f"{role}{text} on {_samples(metric)}."
    baseline = merged.baseline_of(row)
    label = baseline.label if baseline else "the baseline"
    told = changed_answers(merged, row) is not None
    return f"{text}, {_against(metric, label, told)}{_chance(merged, row)}."


def _unmeasured(metric: Metric | None) -> str:
    if metric is None:
        return ""
    reason = f": {visible(metric.note)}" if metric.note else ""
    return f" {sentence_start(wording(metric.name).phrase)} not measured{reason}."


def _interval(metric: Metric) -> str:
    if metric.low is None or metric.high is None:
        return ""
    return f" ({metric.confidence:.0%} interval {interval_text(metric)})"


def _against(metric: Metric, name: str, told: bool) -> str:
    if not metric.drop:
        return f"the same as {name}"
    side = "below" if metric.drop > 0 else "above"
    points = " points" if metric.unit == "share" else ""
    return f"{loss_text(metric, signed=False)}{points} {side} {name}{_moved(metric, told)}"


def _moved(metric: Metric, told: bool) -> str:
    """The interval of the loss, but for a top-1 beside which the answers that changed are counted."""
    ends = loss_interval_text(metric)
    if ends == numbers.MISSING or (told and metric.drop_p_value is not None):
        return ""
    points = " points" if metric.unit == "share" else ""
    return f" ({metric.confidence:.0%} interval of the loss {ends}{points})"


def _chance(merged: Merged, row: Row) -> str:
    changes = changed_answers(merged, row)
    if changes is None:
        return ""
    text = f"; {numbers.whole(changes.changed)} of {numbers.whole(changes.samples)} answers differ"
    if changes.p_value is None or not changes.changed:
        return text
    moved = f"{changes.became_wrong} became wrong, {changes.became_right} became right"
    return f"{text} ({moved}; {by_chance(changes.p_value)})"


def _agreement(row: Row) -> str:
    if row.is_baseline:
        return "the baseline that the others are compared against."
    metric = next((one for one in row.run.metrics if one.name.endswith("_agreement")), None)
    if metric is None or metric.value is None:
        return ""
    if metric.successes is None:
        return f"{wording(metric.name).phrase} {value_text(metric)}{_interval(metric)}."
    share = numbers.percent(metric.value, metric.count)
    return f"the baseline's answer on {share} of {_samples(metric)}{_interval(metric)}."


def _samples(metric: Metric) -> str:
    return numbers.counted(metric.count, "sample[s]")


def _outputs(row: Row) -> str:
    if row.is_baseline:
        return ""
    if row.exact:
        return "Every output equals the baseline's."
    worst = row.worst_output
    if worst is None:
        return ""
    name = f" ({visible(worst.output)})" if len(row.run.outputs) > 1 else ""
    where = "Worst output" if len(row.run.outputs) > 1 else "Output"
    return f"{where}{name}: SQNR {numbers.decibels(worst.sqnr_db)} dB."


def _faults(row: Row) -> str:
    return " ".join(_fault(output) for output in row.run.outputs if fault_of(output))


def _fault(output: OutputError) -> str:
    name = visible(output.output)
    if output.verdict == "rows differ":
        return f"Output {name} has another number of rows than the baseline's."
    count = output.non_finite - output.both_non_finite
    values, are = inflected(count, "value[s]"), inflected(count, "[is|are]")
    return (
        f"{numbers.whole(count)} {values} of output {name} {are} NaN or infinite, the baseline's {are} not."
    )


def _speed(merged: Merged, row: Row) -> str:
    latency = row.run.latency
    if latency is None or numbers.milliseconds(latency.median_ms) == numbers.MISSING:
        return "Latency not measured."
    text = f"Latency p50 {numbers.milliseconds(latency.median_ms)} ms"
    if row.simulated_latency:
        return f"{text} in the simulation."
    known = [pace_against(merged, row, precision) for precision in ("fp32", "fp16")]
    verdicts = [_pace(row, pace) for pace in known if pace is not None]
    return f"{text}{': ' if verdicts else ''}{', '.join(verdicts)}."


def _pace(row: Row, pace: Pace) -> str:
    peer = pace.peer
    if pace.verdict == "same":
        return f"as fast as {peer.label}"
    if pace.verdict == "not shown":
        return f"no difference to {peer.label} shown ({numbers.times(pace.speedup)})"
    if pace.verdict == "slower":
        figures = f"{numbers.milliseconds(row.median_ms)} against {numbers.milliseconds(peer.median_ms)} ms"
        return f"slower than {peer.label} ({figures})"
    return f"{numbers.times(pace.speedup)} as fast as {peer.label}"


def _engine(row: Row) -> str:
    engine = row.run.engine
    return int8_sentence(engine) if engine is not None and row.run.precision == "int8" else ""


def banner(merged: Merged) -> str:
    """What must be seen before any latency; empty where every latency was measured on the target."""
    timed = [row for row in merged.rows if row.run.latency]
    simulated = [row for row in timed if row.simulated_latency]
    if not simulated and not any(row.run.simulated for row in merged.rows):
        return ""
    if not simulated:
        names = ", ".join(row.label for row in merged.rows if row.run.simulated)
        return f"Simulation: the arithmetic of {names} was simulated in float, not run by TensorRT."
    if len(simulated) < len(timed):
        names = ", ".join(row.label for row in simulated)
        return f"CPU simulation ({names}): says nothing of TensorRT's speed; the others are measured."
    return (
        "CPU simulation: says nothing of TensorRT's speed. Accuracy and output errors are judged by "
        "simulating each precision; the latencies are those of this simulation on this machine, and no "
        "speed-up is claimed from them."
    )


def warnings(merged: Merged) -> tuple[str, ...]:
    """The warnings of all results, and those that only show when runs lie side by side."""
    found = [
        (f"{source.key}: " if source.key else "") + visible(warning)
        for source in merged.sources
        for warning in source.results.warnings
        if not (_SIMULATION in warning and banner(merged))
    ]
    found += [text for source in merged.sources for text in _own_faults(source)]
    found += _slower(merged)
    found += [
        f"{row.label} was built for INT8, and no layer of its engine computes in INT8: see Engines for why."
        for row in merged.rows
        if row.run.precision == "int8" and (engine := row.run.engine) is not None
        if tells_precisions(engine) and not engine.int8_layers
    ]
    sizes = sorted({row.run.latency.batch_size for row in merged.rows if row.run.latency})
    if len(sizes) > 1:
        listed = ", ".join(str(size) for size in sizes)
        found.append(f"Latencies are of different batch sizes ({listed}): compare throughput, not latency.")
    return tuple(dict.fromkeys(found))


def _own_faults(source: Source) -> Iterator[str]:
    """What is wrong with results in themselves: an edited figure, values that are not finite."""
    for one in check_integrity(source.results):
        # A report of FP32 alone is one, though a gate has nothing to judge in it.
        if one.verdict != "pass" and one.subject != "runs":
            where = "".join(f"{visible(name)}: " for name in (source.key, one.run) if name)
            yield f"{where}{visible(one.reason)}; calib check fails that."


def _slower(merged: Merged) -> list[str]:
    """INT8 that is slower than FP16, said once, and what to do about it."""
    int8 = [row for row in merged.rows if row.run.precision == "int8"]
    paces = [(row, pace_against(merged, row, "fp16")) for row in int8]
    slower = [(row, pace.peer) for row, pace in paces if pace is not None and pace.verdict == "slower"]
    if not slower:
        return []
    untold = [
        f"{row.label} is slower than {peer.label}."
        for row, peer in slower
        if not any(_tells(warning, row, peer) for warning in row.source.results.warnings)
    ]
    advice = "Where INT8 is slower than FP16, use FP16"
    if all(_has_fp16(row) for row, _ in slower):
        advice += "; what the time of INT8 goes to stands under Engines."
    else:
        advice += (
            ", or build INT8 with FP16 allowed too: "
            "where INT8 alone is allowed, the layers without an INT8 kernel run in FP32."
        )
    return [" ".join([*untold, advice])]


def _tells(warning: str, row: Row, peer: Row) -> bool:
    return warning.startswith(f"{row.run.label} is ") and f"slower than {peer.run.label}" in warning


def _has_fp16(row: Row) -> bool:
    """Whether an engine has FP16 layers, and so was allowed them."""
    return row.run.engine is not None and bool(row.run.engine.by_precision.get("FP16"))
