"""A loss divided into its parts, as text."""

from __future__ import annotations

from calib.report import numbers
from calib.report.text import visible
from calib.validation.decomposition import Decomposition, PartLoss

__all__ = ["decomposition_lines"]


def decomposition_lines(found: Decomposition) -> tuple[str, ...]:
    """A table of parts and outputs, a line each, and the findings.

    Args:
        found: What ``decompose`` gave.
    """
    outputs = [output.output for output in found.parts[0].outputs]
    rows = [_cells(part, output) for output in outputs for part in found.parts]
    header = ("Output", "Part", "SQNR", "Noise", "Top-1", "Drop (95% interval)")
    table = [header, *rows]
    used = [column for column in range(len(header)) if any(row[column] for row in rows)]
    widths = {column: max(len(row[column]) for row in table) for column in used}
    lines = ("  ".join(row[column].ljust(widths[column]) for column in used).rstrip() for row in table)
    title = f"{visible(found.model)} on {visible(found.dataset)}, {found.samples} samples"
    return (title, *lines, *map(visible, found.findings))


def _cells(part: PartLoss, output: str) -> tuple[str, ...]:
    errors = next(one for one in part.outputs if one.output == output)
    share = part.noise_shares[output]
    level = "no error" if errors.verdict == "equal" else f"{numbers.decibels(errors.sqnr_db)} dB"
    top1 = next((metric for metric in part.metrics if metric.name == "top1"), None)
    ends = None if top1 is None else numbers.points_interval(top1.drop_low, top1.drop_high, top1.count)
    return (
        visible(output),
        part.part,
        level,
        numbers.MISSING if share is None else f"{100 * share:.0f}%",
        "" if top1 is None else numbers.percent(top1.value, top1.count),
        "" if top1 is None else f"{numbers.points(top1.drop, top1.count)} ({ends})",
    )
