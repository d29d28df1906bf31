"""A loss divided into its parts, as text."""

from __future__ import annotations

from calib.report import numbers
from calib.report.metrics import loss_interval_text, loss_text, value_text, wording
from calib.report.text import visible
from calib.validation.decomposition import Decomposition, PartLoss
from calib.wording import counted

__all__ = ["decomposition_lines"]


def decomposition_lines(found: Decomposition) -> tuple[str, ...]:
    """A table of parts and outputs, a line each, and the findings.

    Args:
        found: What ``decompose`` gave.
    """
    outputs = [output.output for output in found.parts[0].outputs]
    rows = [_cells(part, output) for output in outputs for part in found.parts]
    main = next((metric.name for part in found.parts for metric in part.metrics), "top1")
    header = ("Output", "Part", "SQNR", "Noise", wording(main).title, "Drop (95% interval)")
    table = [header, *rows]
    used = [column for column in range(len(header)) if any(row[column] for row in rows)]
    widths = {column: max(len(row[column]) for row in table) for column in used}
    lines = ("  ".join(row[column].ljust(widths[column]) for column in used).rstrip() for row in table)
    title = f"{visible(found.model)} on {visible(found.dataset)}, {counted(found.samples, 'sample[s]')}"
    return (title, *lines, *_cancelled(found), *map(visible, found.findings))


def _cancelled(found: Decomposition) -> tuple[str, ...]:
    shares = [share for part in found.parts for share in part.noise_shares.values() if share is not None]
    # Half a per cent more is shown as 100% too.
    return ("Above 100%: errors that those of other parts cancel.",) if max(shares, default=0) > 1.005 else ()


def _cells(part: PartLoss, output: str) -> tuple[str, ...]:
    errors = next(one for one in part.outputs if one.output == output)
    share = part.noise_shares[output]
    level = "no error" if errors.verdict == "equal" else f"{numbers.decibels(errors.sqnr_db)} dB"
    main = next((metric for metric in part.metrics if not metric.name.endswith("_agreement")), None)
    return (
        visible(output),
        part.part,
        level,
        numbers.MISSING if share is None else f"{100 * share:.0f}%",
        "" if main is None else value_text(main),
        "" if main is None else f"{loss_text(main)} ({loss_interval_text(main)})",
    )
