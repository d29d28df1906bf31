"""What a check found, as text for a terminal and as a Markdown summary for a pull request."""

from __future__ import annotations

from calib.report import numbers
from calib.report.blocks import Cell, Column, Table, Tone
from calib.report.markdown import block_to_markdown
from calib.report.text import markdown, visible
from calib.validation.verdicts import Change, CheckReport, GateOutcome, Verdict

__all__ = [
    "TONES",
    "changes_table",
    "check_headline",
    "check_markdown",
    "check_text",
    "gate_cells",
    "gate_lines",
    "gates_table",
    "p_text",
]

_ORDER: tuple[Verdict, ...] = ("fail", "undecided", "new", "not measured", "pass")
_WORDS = {
    "fail": "failed",
    "undecided": "undecided",
    "new": "new",
    "not measured": "not measured",
    "pass": "passed",
}
TONES: dict[str, Tone] = {
    "fail": "bad",
    "undecided": "bad",
    "worse": "bad",
    "missing": "bad",
    "unfair": "bad",
    "became wrong": "bad",
    "pass": "good",
    "better": "good",
    "became right": "good",
}
"""How a reader should take a verdict, a status or an effect."""

_QUIET = ("same",)


def check_headline(report: CheckReport) -> str:
    """The verdict of all gates, and how many came out how.

    >>> check_headline(CheckReport("r.json", "", (GateOutcome("min_sqnr", "INT8", "y", "", "pass", ""),)))
    'PASS: 1 passed'
    """
    counts = ", ".join(
        f"{report.count(verdict)} {_WORDS[verdict]}" for verdict in _ORDER if report.count(verdict)
    )
    allowed = (
        " (undecided gates are allowed)" if report.allow_undecided and report.verdict == "undecided" else ""
    )
    nothing = "" if report.verdict != "fail" or report.count("fail") else "no gate was decided; "
    return f"{report.verdict.upper()}{allowed}: {nothing}{counts or 'no gate'}"


def check_text(report: CheckReport, *, every: bool = False) -> str:
    """The check for a terminal: the headline, then each gate with its limit and the reason.

    Args:
        report: What ``calib.check`` found.
        every: List integrity checks that passed too.
    """
    lines = [f"calib check {visible(report.results)}: {check_headline(report)}"]
    if report.baseline:
        lines.append(f"against {visible(report.baseline)}")
    width = max((len(one.verdict) for one in report.outcomes), default=0)
    for one in report.outcomes:
        if one.gate == "integrity" and one.verdict == "pass" and not every:
            continue
        lines += gate_lines(one, width)
    moved = [change for change in report.changes if change.status not in _QUIET]
    if moved:
        lines.append("Against the baseline:")
        lines += [f"  {_change_text(change)}" for change in moved]
    elif report.changes:
        lines.append("Against the baseline: every figure is the same.")
    return "\n".join(lines)


def gate_lines(one: GateOutcome, width: int) -> list[str]:
    """A gate for a terminal, its verdict set in so many columns."""
    limit = f", {one.limit}" if one.limit else ""
    indent = " " * (width + 4)
    lines = [f"  {one.verdict:<{width}}  {visible(one.name)}{limit}", f"{indent}{visible(one.reason)}"]
    tail = "; ".join(part for part in (p_text(one), visible(one.note)) if part)
    return [*lines, f"{indent}({tail})"] if tail else lines


def p_text(one: GateOutcome) -> str:
    """The p-value that the verdict rests on, before and after correction; both where there is no verdict."""
    if one.p_value is None or one.p_worse is None:
        return ""
    if one.verdict == "undecided":
        within, beyond = one.p_adjusted or one.p_value, one.p_worse_adjusted or one.p_worse
        return f"{one.method}, p = {numbers.probability(within)} within, {numbers.probability(beyond)} beyond"
    failed = one.verdict == "fail"
    raw, adjusted = (one.p_worse, one.p_worse_adjusted) if failed else (one.p_value, one.p_adjusted)
    text = f"{one.method}, p = {numbers.probability(raw)}".replace("= <", "< ")
    if adjusted is not None and adjusted != raw:
        text += f", {numbers.probability(adjusted)} after correction"
    return text


def _change_text(change: Change) -> str:
    before, after = _figure(change.before, change), _figure(change.after, change)
    ends = _flipped(change)
    interval = "" if ends == numbers.MISSING else f", change {ends} (95% interval)"
    noise = "" if change.noise is None else f", rebuild noise {_noise(change)}"
    name = f"{visible(change.run)} {visible(change.figure)}"
    return f"{name}: {before} → {after}: {change.status}{interval}{noise}"


def _flipped(change: Change) -> str:
    """The interval of after − before: a table of changes reads that way."""
    if change.low is None or change.high is None:
        return numbers.MISSING
    if change.unit == "share":
        return f"{numbers.points_interval(-change.high, -change.low)} points"
    ends = (f"{'+' if end > 0 else ''}{numbers.significant(end)}" for end in (-change.high, -change.low))
    return f"{' to '.join(ends)} {change.unit}".rstrip()


def _figure(value: float | None, change: Change) -> str:
    unit = change.unit
    if value is None:
        exact = change.status.startswith("no error") or (unit, change.status) == ("dB", "same")
        return "no error" if exact else "null"
    if unit == "share":
        return numbers.percent(value)
    return (
        f"{numbers.decibels(value)} dB" if unit == "dB" else f"{numbers.significant(value)} {unit}".rstrip()
    )


def _noise(change: Change) -> str:
    assert change.noise is not None
    if change.unit != "share":
        return f"{numbers.significant(change.noise)} {change.unit}".rstrip()
    return f"{numbers.significant(100 * change.noise)} points"


def gates_table(report: CheckReport) -> Table:
    """Every gate: verdict, what was judged, the limit, what was found and why."""
    ordered = sorted(report.outcomes, key=lambda one: _ORDER.index(one.verdict))
    rows = tuple(map(gate_cells, ordered))
    columns = tuple(Column(title, False) for title in ("Verdict", "Gate", "Limit", "Found"))
    correction = (
        "" if report.correction == "none" else f", after {report.correction.capitalize()}'s correction"
    )
    note = (
        f"A drop passes or fails where chance alone would show it in less than {100 * report.alpha:g}% of "
        f"runs{correction}; else it is undecided."
    )
    return Table("Gates.", columns, rows, (note,))


def gate_cells(one: GateOutcome) -> tuple[Cell, ...]:
    """Verdict, gate, limit and what was found of one gate."""
    return (
        Cell(_WORDS[one.verdict], tone=TONES.get(one.verdict, "")),
        Cell(visible(one.name)),
        Cell(one.limit or numbers.MISSING),
        Cell(visible(one.reason), "; ".join(part for part in (p_text(one), visible(one.note)) if part)),
    )


def changes_table(report: CheckReport) -> Table | None:
    """Every figure against the stored baseline; None without one."""
    if not report.changes:
        return None
    rows = tuple(
        (
            Cell(visible(change.run)),
            Cell(visible(change.figure)),
            Cell(_figure(change.before, change)),
            Cell(_figure(change.after, change)),
            Cell(_flipped(change)),
            Cell(change.status, tone=TONES.get(change.status, "")),
        )
        for change in report.changes
    )
    titles = ("Run", "Figure", "Baseline", "Now", "Change, 95% interval", "Status")
    columns = tuple(Column(title, title not in ("Run", "Figure", "Status")) for title in titles)
    return Table("Against the stored baseline.", columns, rows)


def check_markdown(report: CheckReport) -> str:
    """The check as Markdown, for a pull request or ``$GITHUB_STEP_SUMMARY``."""
    sign = {"pass": "✅", "fail": "❌"}.get(report.verdict, "⚠️")
    against = f" against {markdown(report.baseline)}" if report.baseline else ""
    parts = [
        f"## {sign} calib check: {markdown(check_headline(report))}",
        f"{markdown(report.results)}{against}",
        *(f"> [!WARNING]\n> {markdown(text)}" for text in report.warnings),
        block_to_markdown(gates_table(report)),
    ]
    changes = changes_table(report)
    if changes is not None:
        parts.append(block_to_markdown(changes))
    return "\n\n".join(parts) + "\n"
