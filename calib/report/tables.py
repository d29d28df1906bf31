"""The tables of precisions, latencies, output errors and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from calib.report import numbers
from calib.report.blocks import Cell, Column, Table, Tone
from calib.report.changes import changed_answers
from calib.report.fields import Field, table_of_runs
from calib.report.figures import batch_words
from calib.report.merge import Merged, Row, Source, fault_of, is_exact, level_of
from calib.report.metrics import (
    interval_text,
    loss_interval_text,
    loss_text,
    loss_tone,
    other_metrics,
    value_text,
    wording,
)
from calib.report.numbers import MISSING
from calib.report.speed import pace_against
from calib.report.text import shorten, visible
from calib.validation.results import Latency, OutputError, WorstSample
from calib.wording import counted

__all__ = [
    "changes_table",
    "latency_table",
    "making_table",
    "outputs_table",
    "precisions_table",
    "worst_table",
]

_MOST_OUTPUTS = 60
_MOST_SAMPLES = 20
_FULL_BAR_DB = 60.0
_NAME_LIMIT = 64
_LEFT_OUT = ("top5_agreement",)


def precisions_table(merged: Merged) -> Table:
    """One row a run: accuracy, drop, agreement, SQNR, latency, throughput, ratios, size."""
    timed = [row for row in merged.rows if row.run.latency]
    batch = f" Latency {batch_words(timed)}." if timed else ""
    lower = any(not one.higher_is_better for row in merged.rows for one in row.run.metrics)
    rise = ", and so is a positive rise of a figure of which less is better" if lower else ""
    drop = f" A positive drop is a loss{rise}." if merged.judged else ""
    if _known_drops(merged):
        drop += (
            " Beneath it stands its 95% interval, of the same samples. Coloured: more than chance explains."
        )
    simulated = any(row.simulated_latency for row in timed)
    fields = [
        Field("Precision", _name, optional=False, numeric=False),
        *_metric_fields(merged),
        Field("SQNR (dB)", _sqnr),
        Field("Latency p50 (ms)", _latency, optional=False),
        Field("Throughput (samples/s)", lambda row: Cell(_throughput(row.run.latency))),
        Field("Speed-up vs FP32", lambda row: _speed(merged, row, "fp32"), optional=not simulated),
        Field("Speed-up vs FP16", lambda row: _speed(merged, row, "fp16"), optional=not simulated),
        Field("Model size", lambda row: Cell(numbers.byte_size(row.run.model_bytes))),
    ]
    caption = f"The precisions side by side.{batch}{drop}"
    return table_of_runs(caption, merged.rows, fields, _metric_notes(merged.rows))


def _name(row: Row) -> Cell:
    sub = visible(row.run.runner) + (" · baseline" if row.is_baseline else "")
    return Cell(row.label, sub)


def _metric_fields(merged: Merged) -> list[Field]:
    """The figure that speaks for the task and its loss; then the others."""
    main = merged.first.judged_by
    title = wording(main).title
    fields = [
        Field(title, lambda row: _value(row, main), optional=not merged.judged),
        Field(f"{title} {_loss_words(merged, main)}", lambda row: _loss(row, main)),
    ]
    others = [name for name in other_metrics(merged, main) if name not in _LEFT_OUT]
    return [*fields, *(Field(wording(name).title, partial(_value, name=name)) for name in others)]


def _loss_words(merged: Merged, name: str) -> str:
    metric = next((one for row in merged.rows if (one := row.metric(name))), None)
    word = "drop" if metric is None or metric.higher_is_better else "rise"
    return f"{word} (points)" if metric is None or metric.unit == "share" else word


def _value(row: Row, name: str) -> Cell:
    metric = row.metric(name)
    if metric is None:
        return Cell(MISSING)
    ends, value = interval_text(metric), value_text(metric)
    return Cell(value, "" if MISSING in (ends, value) else ends)


def _loss(row: Row, name: str) -> Cell:
    metric = row.metric(name)
    if metric is None or metric.drop is None:
        return Cell(MISSING)
    ends = loss_interval_text(metric)
    return Cell(loss_text(metric), "" if ends == MISSING else ends, loss_tone(metric))


def _known_drops(merged: Merged) -> bool:
    main = merged.first.judged_by
    return any((metric := row.metric(main)) and metric.drop_low is not None for row in merged.rows)


def _sqnr(row: Row) -> Cell:
    if row.fault:
        return Cell(row.fault, tone="bad")
    worst = row.worst_output
    if worst is None:
        return Cell("no error") if row.exact else Cell(MISSING)
    sub = shorten(visible(worst.output), 24) if len(row.run.outputs) > 1 else ""
    return Cell(numbers.decibels(worst.sqnr_db), sub)


def _latency(row: Row) -> Cell:
    latency = row.run.latency
    if latency is None:
        return Cell(MISSING)
    p90, p99 = numbers.milliseconds(latency.p90_ms), numbers.milliseconds(latency.p99_ms)
    return Cell(numbers.milliseconds(latency.median_ms), f"p90 {p90} · p99 {p99}")


def _throughput(latency: Latency | None) -> str:
    return numbers.significant(latency.throughput_per_s) if latency else MISSING


def _speed(merged: Merged, row: Row, precision: str) -> Cell:
    if row.run.precision == precision or row.run.latency is None:
        return Cell(MISSING)
    if row.simulated_latency:
        return Cell("simulated", tone="muted")
    peer = merged.peer(row, precision)
    ratio = numbers.speedup(peer.median_ms, row.median_ms) if peer else None
    if ratio is None:
        return Cell(MISSING)
    text, pace = numbers.times(ratio), pace_against(merged, row, precision)
    if pace is None:
        return Cell(text)
    if pace.verdict == "slower":
        return Cell(text, f"slower than {precision.upper()}", "bad")
    if pace.verdict == "not shown":
        return Cell(text, "no difference shown")
    return Cell(text, tone="good" if pace.verdict == "faster" else "")


def _metric_notes(rows: Iterable[Row]) -> list[str]:
    return [
        f"{row.label}, {visible(metric.name)}: {visible(metric.note)}"
        for row in rows
        for metric in row.run.metrics
        if metric.note
    ]


def changes_table(merged: Merged) -> Table | None:
    """Answers that changed against the baseline; None where there are no predictions."""
    found = [(row, changed_answers(merged, row)) for row in merged.rows]
    rows = [
        (
            Cell(row.label),
            Cell(numbers.whole(changes.changed), f"of {numbers.whole(changes.samples)}"),
            Cell(numbers.whole(changes.became_wrong)),
            Cell(numbers.whole(changes.became_right)),
            Cell(MISSING if changes.p_value is None else numbers.probability(changes.p_value)),
        )
        for row, changes in found
        if changes is not None
    ]
    if not rows:
        return None
    titles = ("Precision", "Changed answers", "Became wrong", "Became right", "McNemar p")
    columns = tuple(Column(title, title != "Precision") for title in titles)
    note = (
        "McNemar p (exact, two-sided): how often chance alone would move so many samples so unevenly. "
        "Below 0.05 the drop is more than chance explains."
    )
    return Table("Answers that changed against the baseline.", columns, tuple(rows), (note,))


def latency_table(merged: Merged) -> Table | None:
    """Everything known of the latencies; None where none was measured."""
    rows = [row for row in merged.rows if row.run.latency]

    def field(title: str, text: Callable[[Latency], str], numeric: bool = True) -> Field:
        def cell(row: Row) -> Cell:
            return Cell(text(row.run.latency) if row.run.latency else MISSING)

        return Field(title, cell, numeric=numeric)

    ms = numbers.milliseconds
    fields = [
        Field("Precision", lambda row: Cell(row.label), optional=False, numeric=False),
        field("p50", lambda latency: ms(latency.median_ms)),
        field("p90", lambda latency: ms(latency.p90_ms)),
        field("p99", lambda latency: ms(latency.p99_ms)),
        field("Mean", lambda latency: ms(latency.mean_ms)),
        field("Min", lambda latency: ms(latency.min_ms)),
        field("First batch", lambda latency: ms(latency.first_ms)),
        field("Batch size", lambda latency: numbers.whole(latency.batch_size)),
        field("Timed batches", lambda latency: numbers.whole(latency.count)),
        field("Warm-up batches", lambda latency: numbers.whole(latency.warmup)),
        field("Device", lambda latency: visible(latency.device) or MISSING, numeric=False),
        field("Clock", lambda latency: visible(latency.clock), numeric=False),
    ]
    if not rows:
        return None
    return table_of_runs("Latency of one batch in milliseconds; warm-up is not counted.", rows, fields)


def outputs_table(merged: Merged) -> Table | None:
    """Errors of each output in each precision, output by output; None without candidates."""
    pairs = [(row, output) for row in merged.rows for output in row.run.outputs]
    if not pairs:
        return None
    order = {name: index for index, name in enumerate(dict.fromkeys(pair[1].output for pair in pairs))}
    shown = sorted(pairs, key=lambda pair: order[pair[1].output])
    notes = [
        f"{visible(output.output)}, {row.label}: {visible(output.note)}"
        for row, output in pairs
        if output.note
    ]
    if len(shown) > _MOST_OUTPUTS:
        shown = sorted(pairs, key=lambda pair: _badness(pair[1]))[:_MOST_OUTPUTS]
        notes = notes[:_MOST_OUTPUTS]
        notes.append(f"The {_MOST_OUTPUTS} worst of {len(pairs)} rows; outputs.csv has all.")
    titles = ("SQNR (dB)", "Cosine", "Max abs error", "Mean abs error", "Reference amax", "NaN or infinite")
    columns = (Column("Output", False), Column("Precision", False), *map(Column, titles))
    caption = "Error of each output against the baseline, over all samples. Higher SQNR is better."
    rows = tuple(_output_cells(row, output) for row, output in shown)
    gap = any(cell.missing for cells in rows for cell in cells)
    first = (f"{MISSING}: not measured, or does not apply.",) if gap else ()
    return Table(caption, columns, rows, (*first, *dict.fromkeys(notes)))


def _badness(output: OutputError) -> float:
    level = level_of(output)
    return math.inf if level is None else level


def _output_cells(row: Row, output: OutputError) -> tuple[Cell, ...]:
    if output.sqnr_db is None or not math.isfinite(output.sqnr_db):
        sqnr = Cell("no error" if is_exact(output) else fault_of(output) or MISSING)
    else:
        bar = min(1.0, max(0.0, output.sqnr_db / _FULL_BAR_DB))
        sqnr = Cell(numbers.decibels(output.sqnr_db), bar=bar)
    broken = numbers.whole(output.non_finite)
    reference = f"reference: {output.reference_non_finite:,}" if output.reference_non_finite else ""
    return (
        Cell(
            shorten(visible(output.output), _NAME_LIMIT),
            f"{numbers.whole(output.elements)} values",
            code=True,
        ),
        Cell(row.label),
        sqnr,
        Cell(numbers.cosine(output.cosine)),
        Cell(numbers.significant(output.max_abs)),
        Cell(numbers.significant(output.mean_abs)),
        Cell(numbers.significant(output.reference_amax)),
        Cell(broken, reference, "bad" if output.non_finite or output.reference_non_finite else ""),
    )


def worst_table(merged: Merged) -> Table | None:
    """Samples that moved most, the precision that moved them most first; None where none are recorded."""
    samples = [_worst(merged, source, sample) for source in merged.sources for sample in source.results.worst]
    if not samples:
        return None
    labels = dict.fromkeys(one.run for one in samples)
    groups = [[one for one in samples if one.run == label] for label in labels]
    kept = [one for group in sorted(groups, key=_lowest) for one in group[:_MOST_SAMPLES]]
    classes = any(one.sample.candidate_class is not None for one in kept)
    changes = any(one.sample.change for one in kept)
    titles = ["Precision", "Sample", *(["Label", "Baseline → candidate"] if classes else [])]
    titles += ["Change"] if changes else []
    columns = [*(Column(title, False) for title in titles), Column("SQNR (dB)"), Column("Max abs error")]
    left = len(samples) - len(kept)
    notes = (f"{counted(left, 'more [is|are]')} in the results file.",) if left else ()
    rows = tuple(_sample_cells(one, classes, changes) for one in kept)
    return Table("Samples whose outputs moved most.", tuple(columns), rows, notes)


class _Worst(NamedTuple):
    """A sample, the label of its run, and its true class where that is known."""

    run: str
    sample: WorstSample
    truth: int | None


def _worst(merged: Merged, source: Source, sample: WorstSample) -> _Worst:
    row, results = merged.row_of(source, sample), source.results
    truth = None
    if results.labels is not None and sample.sample_id in results.sample_ids:
        truth = results.labels[results.sample_ids.index(sample.sample_id)]
    return _Worst(row.label if row else visible(sample.precision.upper()), sample, truth)


def _lowest(group: Sequence[_Worst]) -> float:
    return min((one.sample.sqnr_db for one in group if one.sample.sqnr_db is not None), default=math.inf)


def _class(number: int | None) -> str:
    """A class number; −1 stands for no answer, where scores are NaN."""
    return "none" if number is not None and number < 0 else numbers.whole(number)


def _sample_cells(one: _Worst, classes: bool, changes: bool) -> tuple[Cell, ...]:
    sample = one.sample
    before, after = sample.baseline_class, sample.candidate_class
    origin = visible(sample.origin) if sample.origin != sample.sample_id else ""
    answer = f"{_class(before)} → {_class(after)}" if before != after else f"{_class(after)}, as before"
    middle = (
        Cell(shorten(visible(sample.label), _NAME_LIMIT) if sample.label is not None else MISSING),
        Cell(answer, *_turn(one.truth, before, after)),
    )
    return (
        Cell(one.run),
        Cell(shorten(visible(sample.sample_id), _NAME_LIMIT), shorten(origin, _NAME_LIMIT), code=True),
        *(middle if classes else ()),
        *((Cell(shorten(visible(sample.change), 80) or MISSING),) if changes else ()),
        Cell(numbers.decibels(sample.sqnr_db)),
        Cell(numbers.significant(sample.max_abs)),
    )


def _turn(truth: int | None, before: int | None, after: int | None) -> tuple[str, Tone]:
    """Whether an answer became wrong or right, and how a reader should take that."""
    # A label below 0 is not known, as an answer below 0 is none: the two are not equal.
    if truth is None or truth < 0 or before == after or truth not in (before, after):
        return "", ""
    return ("became wrong", "bad") if truth == before else ("became right", "good")


def making_table(merged: Merged) -> Table:
    """How each precision was made and run."""
    fields = [
        Field("Precision", _name, optional=False, numeric=False),
        Field("How it was made", lambda row: Cell(visible(row.run.description) or MISSING), numeric=False),
        Field("Simulated", lambda row: Cell("yes" if row.run.simulated else "no"), numeric=False),
        Field("Q/DQ pairs", lambda row: Cell(numbers.whole(row.run.quantized_tensors))),
        Field("Inference of all samples", lambda row: Cell(numbers.seconds(row.run.seconds))),
    ]
    return table_of_runs("How each precision was made.", merged.rows, fields)
