"""A comparison of two results files as text for a terminal, and its figures in words."""

from __future__ import annotations

from collections.abc import Iterator

from calib.report import numbers
from calib.report.gates import gate_lines
from calib.report.text import visible
from calib.validation.qualification import EngineShift, Flip, Flips, LatencyShift, Qualification, Shift
from calib.validation.speed_records import HOST_DOUBT
from calib.wording import counted

__all__ = [
    "WEIGHTS",
    "amount",
    "chance_of",
    "change_interval",
    "difference",
    "figure",
    "left_out",
    "qualification_headline",
    "qualification_text",
    "ratio_doubt",
    "ratio_interval",
]

WEIGHTS = {"unfair": "unfair", "doubt": "doubtful", "subject": "changed"}
_SHOWN = 5
_LEAST_CHANGE = 0.02


def qualification_headline(found: Qualification) -> str:
    """What came out, in one sentence.

    >>> qualification_headline(Qualification("a", "b", "m", "d", 9, (), (), (), (), (), ()))
    'no figure got worse by more than chance and noise explain'
    """
    worse = [f"{one.run} {one.figure}" for one in found.worse]
    better = [f"{one.run} {one.figure}" for one in found.better]
    parts = [counted(len(found.faults), "fault[s]")] if found.faults else []
    parts += [f"worse: {', '.join(worse)}"] if worse else []
    parts += [f"better: {', '.join(better)}"] if better else []
    parts += _speed(found)
    said = "; ".join(map(visible, parts)) or "no figure got worse by more than chance and noise explain"
    return said if found.verdict is None else f"{found.verdict.upper()}; {said}"


def _speed(found: Qualification) -> list[str]:
    """Runs whose latency changed by more than the interval and builds of one model explain, and by 2 %.

    Where the host may be what was measured, another load of it explains any change.
    """
    moved = [
        (one.run, one.ratio)
        for one in found.latencies
        if one.ratio is not None and one.low is not None and one.high is not None
        if not one.low <= 1 <= one.high and not ratio_doubt(one) and abs(one.ratio - 1) >= _LEAST_CHANGE
    ]
    slower = [f"{run} {numbers.significant(ratio)} times" for run, ratio in moved if ratio > 1]
    faster = [f"{run} {numbers.significant(ratio)} times" for run, ratio in moved if ratio < 1]
    words = (("slower", slower), ("faster", faster))
    return [f"{word}: {', '.join(runs)}" for word, runs in words if runs]


def qualification_text(found: Qualification) -> str:
    """The comparison for a terminal."""
    lines = [
        f"{visible(found.model)} on {visible(found.dataset)}, {counted(found.samples, 'sample[s]')}: "
        f"{qualification_headline(found)}",
        f"  {visible(found.old)} → {visible(found.new)}",
    ]
    for title, part in (
        ("Faults:", [f"  {visible(text)}" for text in found.faults]),
        ("What is not the same:", _circumstance_lines(found)),
        ("Figures:", [f"  {_shift_text(one)}" for one in found.shifts if one.status != "same"]),
        ("Answers:", [line for flips in found.flips for line in _flip_lines(flips)]),
        ("Latency:", [f"  {line}" for line in _latency_lines(found)]),
        ("Engines:", [f"  {_engine_text(one)}" for one in found.engines]),
        ("Gates:", [line for one in found.gates for line in gate_lines(one, 9)]),
    ):
        lines += [title, *part] if part else []
    same = sum(one.status == "same" for one in found.shifts)
    lines += [f"{counted(same, 'figure[s] [is|are]')} the same."] if same else []
    lines += [text for text in left_out(found)]
    return "\n".join(lines)


def left_out(found: Qualification) -> Iterator[str]:
    """Runs that only one side has, in a sentence each."""
    if found.only_old:
        yield f"Only in the old results: {visible(', '.join(found.only_old))}."
    if found.only_new:
        yield f"Only in the new results: {visible(', '.join(found.only_new))}."


def _circumstance_lines(found: Qualification) -> list[str]:
    return [
        f"  {WEIGHTS[one.weight]:<8}  {visible(one.what)}: {visible(one.before)} → {visible(one.after)}"
        + (f" ({visible(one.note)})" if one.note else "")
        for one in found.circumstances
    ]


def _shift_text(one: Shift) -> str:
    change = f", change {difference(one)}" if one.difference is not None else ""
    ends = change_interval(one)
    interval = "" if ends == numbers.MISSING else f" ({ends}, 95% interval)"
    p_value = chance_of(one)
    chance = "" if p_value == numbers.MISSING else f", p = {p_value}".replace("= <", "< ")
    noise = "" if one.noise is None else f", builds differ by up to {amount(one.noise, one.unit)}"
    return (
        f"{visible(one.run)} {visible(one.figure)}: {figure(one.before, one.unit, one.status)} → "
        f"{figure(one.after, one.unit, one.status)}: {one.status}{change}{interval}{chance}{noise}"
    )


def figure(value: float | None, unit: str, status: str = "") -> str:
    """A figure with its unit; "null" where it was not measured, "no error" for an SQNR that is infinite.

    >>> figure(0.91, "share"), figure(None, "dB", "no error before"), figure(None, "dB", "missing")
    ('91.0%', 'no error', 'null')
    """
    if value is None:
        return "no error" if status.startswith("no error") or (unit, status) == ("dB", "same") else "null"
    if unit == "dB":
        return f"{numbers.decibels(value)} dB"
    return numbers.percent(value) if unit == "share" else f"{numbers.significant(value)} {unit}".rstrip()


def amount(value: float, unit: str) -> str:
    """A difference with its unit."""
    if unit == "share":
        return f"{numbers.significant(100 * value)} points"
    return f"{numbers.significant(value)} {unit}".rstrip()


def difference(one: Shift) -> str:
    """The change of a figure, signed."""
    if one.difference is None:
        return numbers.MISSING
    sign = "+" if one.difference > 0 else ""
    return f"{sign}{amount(one.difference, one.unit)}"


def change_interval(one: Shift) -> str:
    """The interval of a figure's change."""
    if one.low is None or one.high is None or one.low == one.high == one.difference == 0:
        return numbers.MISSING
    if one.unit == "share":
        return numbers.points_interval(one.low, one.high)
    return " to ".join(f"{'+' if end > 0 else ''}{numbers.significant(end)}" for end in (one.low, one.high))


def chance_of(one: Shift) -> str:
    """The p-value of a change, after correction."""
    value = one.p_value if one.p_adjusted is None else one.p_adjusted
    return numbers.MISSING if value is None else numbers.probability(value)


def _flip_lines(flips: Flips) -> list[str]:
    if not flips.changed:
        return []
    sides = (
        ""
        if flips.became_wrong is None
        else (f": {flips.became_wrong} became wrong, {flips.became_right} became right")
    )
    lines = [f"  {visible(flips.run)}: {flips.changed} of {flips.samples} changed{sides}"]
    lines += [f"    {_flip_text(one)}" for one in flips.listed[:_SHOWN]]
    left = flips.changed - min(_SHOWN, len(flips.listed))
    return [*lines, *([f"    and {left} more"] if left else [])]


def _flip_text(one: Flip) -> str:
    label = "" if one.label is None else f", label {one.label}"
    level = "" if one.sqnr_db is None else f", SQNR {numbers.decibels(one.sqnr_db)} dB"
    return f"{visible(one.sample_id)}{label}: {one.before} → {one.after}, {one.effect}{level}"


def _latency_lines(found: Qualification) -> list[str]:
    """A line for each ratio, and one for each reason why others are not compared."""
    refused: dict[str, list[str]] = {}
    for one in found.latencies:
        if one.ratio is None:
            refused.setdefault(one.note, []).append(visible(one.run))
    lines = [_latency_text(one, one.ratio) for one in found.latencies if one.ratio is not None]
    return [*lines, *(f"{', '.join(runs)}: not compared: {visible(why)}" for why, runs in refused.items())]


def _latency_text(one: LatencyShift, ratio: float) -> str:
    ends = " → ".join(f"{numbers.milliseconds(value)} ms" for value in (one.before_ms, one.after_ms))
    ends_of_ratio = ratio_interval(one)
    interval = "" if ends_of_ratio == numbers.MISSING else f" ({ends_of_ratio}, 95% interval)"
    noise = "" if one.noise is None else f", builds differ by up to {numbers.significant(one.noise, 4)} times"
    doubt = f": {text}" if (text := ratio_doubt(one)) else ""
    return f"{visible(one.run)}: {ends}: {numbers.significant(ratio, 4)} times{interval}{noise}{doubt}"


def ratio_doubt(one: LatencyShift) -> str:
    """Why a ratio of latencies may be no change of the engine; empty where nothing is known against it."""
    if _within_noise(one):
        return "within the noise"
    bound = one.ratio is not None and one.host_bound
    return HOST_DOUBT if bound else ""


def _within_noise(one: LatencyShift) -> bool:
    """Whether builds of one model differ as much in latency."""
    return bool(one.ratio and one.noise and max(one.ratio, 1 / one.ratio) <= one.noise)


def ratio_interval(one: LatencyShift) -> str:
    """The interval of a ratio of latencies."""
    if one.low is None or one.high is None:
        return numbers.MISSING
    return f"{numbers.significant(one.low, 4)} to {numbers.significant(one.high, 4)}"


def _engine_text(one: EngineShift) -> str:
    size = " → ".join(map(numbers.byte_size, one.engine_bytes))
    layers = " → ".join(
        f"{int8} of {layers}" for int8, layers in zip(one.int8_layers, one.layers, strict=True)
    )
    return f"{visible(one.run)}: {size}; INT8 layers {layers}; {_moved_text(one)}"


def _moved_text(one: EngineShift) -> str:
    if not one.known:
        return "which node computes in what is not known of both"
    if not one.moved:
        return "every node computes in the same precision"
    shown = ", ".join(f"{name} {before} → {after}" for name, before, after in one.moved[:_SHOWN])
    left = len(one.moved) - _SHOWN
    more = f" and {left} more" if left > 0 else ""
    return f"{counted(len(one.moved), 'node[s] compute[s|]')} in another precision: {visible(shown)}{more}"
