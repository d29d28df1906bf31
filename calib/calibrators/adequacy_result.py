"""What an assessment of a calibration set says, as numbers and as plain text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from calib.wording import counted

__all__ = ["Adequacy", "State", "TensorAdequacy", "difference_in_words"]

State = Literal["settled", "spread", "growing", "order", "zero", "absent"]

_RATIO = 0.5
"""From here on 100·|ln(a / b)| and the difference in percent are too far apart to be called the same."""

_WIDTH = 40
"""Longest name in the table; longer ones lose their middle."""

_WORDS: Mapping[State, str] = {
    "settled": "settled",
    "spread": "moves with the choice of samples",
    "growing": "still grows with the samples",
    "order": "differs between first and second half",
    "zero": "all zero in a part of the samples",
    "absent": "no values in a part of the samples",
}


@dataclass(frozen=True)
class TensorAdequacy:
    """How far one tensor's scale depends on which samples it was calibrated with.

    Differences are |ln(a / b)|: 0.05 is 5 %, the same both ways (T. J. Cole, "Sympercents", Statistics
    in Medicine 19, 2000). They are None where one of the scales is zero and the other is not.

    Attributes:
        tensor: The tensor's name.
        state: "settled"; or why it is still moving: "spread" (halves or resamples differ by more than
            the tolerance), "growing" (the first quarter and half lie below the whole by more than
            that), "order" (only the ordered halves differ), "zero" or "absent" (all zero, or without
            values, in some part of the samples and not in another).
        scale: Scale of all samples; 0.0 for a tensor that was zero throughout.
        first_quarter: Scale of the first quarter of the blocks.
        first_half: Scale of the first half of the blocks.
        even_odd: Difference of the halves made of every other block.
        first_second: Difference of the first and the second half; far above ``even_odd`` where the
            order of the samples matters.
        expected: Expected difference of two halves; see `expected_half_difference`.
        spread: 90 % range of ln(scale) over the resamples.
        standard_error: Standard error of ln(scale) of all samples, from the resamples.
        halves: Root mean square difference of the three pairs of halves made of interleaved quarters.
        quarters: Root mean square difference of the six pairs of interleaved quarters.
        doubling: Mean ln(scale of all samples / scale of a half), over the six such halves.
        blocks_zero: Number of blocks in which the tensor had values, all of them zero.
        blocks_absent: Number of blocks in which it had no values.
    """

    tensor: str
    state: State
    scale: float
    first_quarter: float
    first_half: float
    even_odd: float | None
    first_second: float | None
    expected: float | None
    spread: float | None
    standard_error: float | None
    halves: float | None
    quarters: float | None
    doubling: float | None
    blocks_zero: int
    blocks_absent: int

    @property
    def settled(self) -> bool:
        """Whether no difference is above the tolerance."""
        return self.state == "settled"

    @property
    def difference(self) -> float:
        """The largest of the differences that decide; infinite where one scale is zero."""
        return max(_or_infinite(d) for d in (self.even_odd, self.first_second, self.expected))


@dataclass(frozen=True)
class Adequacy:
    """Whether a calibration set was large enough. Every field can be written as JSON.

    Attributes:
        method: Method of calibration.
        samples: Number of calibration samples; None if not told.
        blocks: Number of blocks that they were cut into.
        resamples: Number of bootstrap resamples.
        distinct_resamples: Number of those that differ, each of which was computed once.
        seed: Seed of the resamples.
        tolerance: Difference up to which a scale counts as settled.
        tensors: Every tensor; those that still move come first, the furthest apart at the top.
        factor: How many times as many samples all tensors would need, by rough extrapolation; 1.0 if
            these were enough, 16.0 for at least that; None where there is no telling.
        suggestion: What to do, in words.
    """

    method: str
    samples: int | None
    blocks: int
    resamples: int
    distinct_resamples: int
    seed: int
    tolerance: float
    tensors: tuple[TensorAdequacy, ...]
    factor: float | None
    suggestion: str

    @property
    def moving(self) -> tuple[TensorAdequacy, ...]:
        """The tensors that are not settled."""
        return tuple(row for row in self.tensors if not row.settled)

    @property
    def settled_share(self) -> float:
        """Share of the tensors that are settled, in 0 … 1."""
        return 1 - len(self.moving) / len(self.tensors)

    @property
    def enough(self) -> bool:
        """Whether all tensors are settled."""
        return not self.moving

    @property
    def worst(self) -> tuple[TensorAdequacy, ...]:
        """The ten tensors furthest from settled."""
        return self.tensors[:10]

    @property
    def note(self) -> str:
        """The result in one line."""
        total = len(self.tensors)
        settled = f"{total - len(self.moving)} of {total} scales are settled"
        return f"{settled} within {self.tolerance * 100:.10g}%. {self.suggestion}"

    def text(self, limit: int = 10) -> str:
        """The result as plain lines for a terminal.

        Args:
            limit: Largest number of tensors to list.
        """
        samples = "" if self.samples is None else f"{counted(self.samples, 'sample[s]')} in "
        resamples = f"{self.resamples} resamples ({self.distinct_resamples} distinct)"
        lines = [f"Calibration set: {self.method}, {samples}{self.blocks} blocks, {resamples}", self.note]
        if limit > 0:
            lines += ["", *_table(self.tensors[:limit])]
        unseen = len(self.moving) - max(limit, 0)
        if limit > 0 and unseen > 0:
            lines.append(f"and {unseen} more that still move")
        return "\n".join(lines)


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _table(rows: Sequence[TensorAdequacy]) -> list[str]:
    """Lines of a table, differences in percent."""
    names = [_shortened(row.tensor) for row in rows]
    width = max(len(name) for name in ["tensor", *names])
    head = f"{'tensor':{width}} {'scale':>11} {'even/odd':>9} {'1st/2nd':>9} {'expected':>9} {'90%':>9}"
    lines = [f"{head} {'1st ¼':>8} {'1st ½':>8}  verdict"]
    for name, row in zip(names, rows, strict=True):
        compared = (row.even_odd, row.first_second, row.expected, row.spread)
        differences = " ".join(f"{difference_in_words(value):>9}" for value in compared)
        growth = f"{_share(row.first_quarter, row.scale):>8} {_share(row.first_half, row.scale):>8}"
        lines.append(f"{name:{width}} {row.scale:11.4g} {differences} {growth}  {_verdict(row)}")
    return lines


def _verdict(row: TensorAdequacy) -> str:
    return "settled, zero throughout" if row.scale == 0 else _WORDS[row.state]


def difference_in_words(value: float | None) -> str:
    """A difference |ln(a / b)| in percent, or, where percent would mislead, as the ratio a : b.

    Args:
        value: The difference; None where there is none to tell.

    >>> difference_in_words(0.05), difference_in_words(math.log(20))
    ('5.0%', '×20')
    """
    if value is None:
        return "–"
    return f"{value * 100:.1f}%" if value < _RATIO else f"×{math.exp(value):.3g}"


def _share(part: float, whole: float) -> str:
    """A scale as a share of the one of all samples."""
    return "–" if whole == 0 else f"{part / whole * 100:.0f}%"


def _shortened(name: str) -> str:
    if len(name) <= _WIDTH:
        return name
    kept = _WIDTH - 1
    return f"{name[: kept // 2]}…{name[-(kept - kept // 2) :]}"
