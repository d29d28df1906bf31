"""Which points the charts show, and what the charts say in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from calib.report import numbers
from calib.report.blocks import Figure
from calib.report.charts import NARROW, WIDE, Point, Scale, Strip, draw_scatter, draw_strips
from calib.report.merge import Merged, Row
from calib.report.metrics import interval_text, main_metric, sentence_start, value_text, wording
from calib.report.palette import look_of
from calib.report.text import visible
from calib.validation.results import Latency, Metric

__all__ = ["accuracy_figures", "batch_words", "latency_figures"]

_MOST_DOTS = 150
_SQNR_TITLE = "SQNR of the worst output (dB)"
_SQNR_MEANING = (
    "SQNR of the worst output; a dashed line is a run without one "
    "(the baseline, no error, or outputs that cannot be compared)"
)
_AGREEMENT = "_agreement"
_UNITLESS = ("embedding_agreement",)


def accuracy_figures(merged: Merged) -> list[Figure]:
    """Accuracy against latency: a chart of measured latencies, one of simulated ones, as there are."""
    measure = _measure(merged)
    figures = []
    for simulated, rows in _by_clock(merged):
        drawn = [row for row in rows if measure == "sqnr" or _height(row, measure) is not None]
        if any(_height(row, measure) is not None for row in drawn):
            name = "accuracy-latency" + ("-simulated" if simulated and _is_mixed(merged) else "")
            figures.append(_accuracy_figure(name, drawn, measure, simulated, _left_out(merged, measure)))
    return figures


def _meaning(rows: Sequence[Row], measure: str) -> str:
    if measure == "sqnr":
        return _SQNR_MEANING
    metric = _example(rows, measure)
    interval = "interval"
    if metric is not None:
        method = visible(metric.interval)
        several = " " in method
        interval = f"{metric.confidence:.0%} " + (f"interval ({method})" if several else f"{method} interval")
    what = wording(measure).phrase
    if measure == "top1_agreement":
        return f"share of samples with the baseline's answer, with its {interval}"
    return what if metric is not None and metric.low is None else f"{what} with its {interval}"


def _example(rows: Sequence[Row], measure: str) -> Metric | None:
    """A run's figure, whose unit and direction are those of all."""
    return next((metric for row in rows if (metric := row.metric(measure))), None)


def _title(rows: Sequence[Row], measure: str) -> str:
    if measure == "sqnr":
        return _SQNR_TITLE
    metric = _example(rows, measure)
    unit = "%" if metric is None or metric.unit == "share" else visible(metric.unit)
    title = sentence_start(wording(measure).phrase)
    return f"{title} ({unit})" if unit else title


def _left_out(merged: Merged, measure: str) -> str:
    """Names the runs that no chart can show."""
    untimed = [row for row in merged.rows if row.median_ms is None or not math.isfinite(row.median_ms)]
    unjudged = [row for row in merged.rows if measure != "sqnr" and _height(row, measure) is None]
    names = [row.label for row in merged.rows if row in untimed or row in unjudged]
    if not names:
        return ""
    return f" Not shown, since its latency or accuracy was not measured: {', '.join(names)}."


def _height(row: Row, measure: str) -> float | None:
    """The figure that the chart shows upright: per cent, the figure's unit, or dB."""
    if measure == "sqnr":
        return _finite(row.worst_output.sqnr_db) if row.worst_output else None
    metric = row.metric(measure)
    if metric is None and measure.endswith(_AGREEMENT) and row.is_baseline:
        return 1.0 if measure in _UNITLESS else 100.0
    value = _finite(metric.value) if metric else None
    return None if metric is None or value is None else _factor(metric) * value


def _factor(metric: Metric) -> float:
    return 100.0 if metric.unit == "share" else 1.0


def _measure(merged: Merged) -> str:
    return main_metric(merged) or "sqnr"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _by_clock(merged: Merged) -> Iterator[tuple[bool, list[Row]]]:
    timed = [row for row in merged.rows if row.run.latency and math.isfinite(row.median_ms or 0.0)]
    for simulated in (False, True):
        rows = [row for row in timed if row.simulated_latency is simulated]
        if rows:
            yield simulated, rows


def _is_mixed(merged: Merged) -> bool:
    return len(list(_by_clock(merged))) > 1


def _point(row: Row, latency: Latency, measure: str) -> Point:
    x = latency.median_ms
    high = max(x, latency.p90_ms) if math.isfinite(latency.p90_ms) else x
    timing = f"p50 {numbers.milliseconds(x)} ms, p90 {numbers.milliseconds(latency.p90_ms)} ms"
    y = _height(row, measure)
    low, top = _ends(row.metric(measure))
    return Point(
        label=row.label + (_state(row) if y is None else ""),
        look=look_of(row.run.precision, row.variant),
        tip=f"{row.label}: {_figure_words(row, measure)}, {timing}",
        x=x,
        x_high=high,
        y=y,
        y_low=low,
        y_high=top,
    )


def _ends(metric: Metric | None) -> tuple[float | None, float | None]:
    low, high = (_finite(metric.low), _finite(metric.high)) if metric else (None, None)
    if metric is None or low is None or high is None:
        return None, None
    return _factor(metric) * low, _factor(metric) * high


def _state(row: Row) -> str:
    """Why a run has no SQNR."""
    state = "baseline" if row.is_baseline else row.fault or ("no error" if row.exact else "")
    return f" ({state})" if state else ""


def _figure_words(row: Row, measure: str) -> str:
    if measure == "sqnr":
        y = _height(row, measure)
        return f"no SQNR{_state(row)}" if y is None else f"SQNR {numbers.decibels(y)} dB"
    metric = row.metric(measure)
    if metric is None or metric.value is None:
        return "baseline"
    return f"{value_text(metric)} (interval {interval_text(metric)})"


def _accuracy_figure(name: str, rows: Sequence[Row], measure: str, simulated: bool, left_out: str) -> Figure:
    points = [_point(row, row.run.latency, measure) for row in rows if row.run.latency]
    values = [end for point in points for end in (point.y, point.y_low, point.y_high) if end is not None]
    y = _scale(rows, measure, values)
    better = "Up" if (metric := _example(rows, measure)) is None or metric.higher_is_better else "Down"
    batch = batch_words(rows)
    kind = "CPU simulation, which says nothing of TensorRT's speed" if simulated else "measured"
    caption = (
        f"Accuracy against latency ({kind}). {better} and left is better. Upright: "
        f"{_meaning(rows, measure)}. "
        f"Across: latency from p50 (the mark) to p90.{left_out}"
    )
    tips = "; ".join(point.tip for point in points)
    x_title = f"Latency {batch} (ms)"
    title = _title(rows, measure)
    drawings = [draw_scatter(points, title, x_title, y, plot) for plot in (WIDE, NARROW)]
    return Figure(name, caption, f"{title} against latency {batch}. {tips}.", *drawings)


def _scale(rows: Sequence[Row], measure: str, values: Sequence[float]) -> Scale:
    metric = _example(rows, measure)
    if measure == "sqnr":
        return Scale.around(values, 10.0, (-math.inf, math.inf))
    if metric is None or metric.unit == "share":
        return Scale.around(values, 1.0, (0.0, 100.0))
    # Wide enough for rounding alone not to look like a change, in whatever unit.
    return Scale.around(values, 0.01 * max(map(abs, values)) or 0.01, (-math.inf, math.inf))


def batch_words(rows: Sequence[Row]) -> str:
    """What one latency covers: "of a batch of 32 samples", or that batch sizes differ."""
    sizes = sorted({row.run.latency.batch_size for row in rows if row.run.latency})
    if len(sizes) == 1:
        return "of one sample" if sizes[0] == 1 else f"of a batch of {sizes[0]} samples"
    return f"of a batch (batch sizes differ: {', '.join(str(size) for size in sizes)})"


def latency_figures(merged: Merged) -> list[Figure]:
    """How the latencies of single batches spread: measured and simulated ones apart."""
    figures = []
    for simulated, rows in _by_clock(merged):
        strips = [_strip(row, row.run.latency) for row in rows if row.run.latency]
        kind = "CPU simulation" if simulated else "measured"
        caption = (
            f"Latency {batch_words(rows)} ({kind}). Dots: timed batches"
            f"{_sampling(rows)}. Bars: p50 (tall), p90 and p99."
        )
        name = "latency" + ("-simulated" if simulated and _is_mixed(merged) else "")
        alt = "Spread of latency. " + "; ".join(strip.tip for strip in strips) + "."
        x_title = f"Latency {batch_words(rows)} (ms)"
        drawings = [draw_strips(strips, x_title, plot) for plot in (WIDE, NARROW)]
        figures.append(Figure(name, caption, alt, *drawings))
    return figures


def _sampling(rows: Sequence[Row]) -> str:
    most = max(len(row.run.latency.times_ms) if row.run.latency else 0 for row in rows)
    return f", at most {_MOST_DOTS} of them evenly picked" if most > _MOST_DOTS else ""


def _strip(row: Row, latency: Latency) -> Strip:
    figures = {"p50": latency.median_ms, "p90": latency.p90_ms, "p99": latency.p99_ms}
    known = {name: value if math.isfinite(value) else latency.median_ms for name, value in figures.items()}
    words = ", ".join(f"{name} {numbers.milliseconds(value)} ms" for name, value in figures.items())
    times = sorted(time for time in latency.times_ms if math.isfinite(time))
    step = max(1.0, len(times) / _MOST_DOTS)
    picked = tuple(times[int(index * step)] for index in range(min(len(times), _MOST_DOTS)))
    tip = visible(f"{row.label}: {words}, {latency.count} batches")
    return Strip(row.label, look_of(row.run.precision, row.variant), tip, picked, **known)
