"""Figures of accuracy as results keep them; part of the layout of ``calib.validation.results``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClassFigure", "Draws", "Metric"]


@dataclass(frozen=True)
class Metric:
    """A figure of accuracy with its interval.

    Attributes:
        name: "top1", "mAP", "mIoU", "RMSE" …; names that end in "_agreement" compare with FP32's answers.
        value: The figure, in its unit; None where nothing was measured.
        count: Number of samples, or other units, behind it.
        successes: Number of samples that were right, for shares.
        low: Lower end of the interval.
        high: Upper end of the interval.
        confidence: The interval's confidence, 0.95.
        interval: How it was made: "Wilson", "BCa bootstrap, 1999 resamples, seed 0".
        higher_is_better: Direction.
        drop: Baseline value minus this value, signed; None for the baseline and for agreement.
        note: Ties, skipped samples, why a figure is None.
        ties: Number of samples whose highest score several classes share.
        drop_low: Lower end of the drop's interval, of the same confidence; this and the following are
            None where there is no drop, or it was not made from the same samples.
        drop_high: Upper end of the drop's interval.
        drop_method: How the drop's interval was made: "Tango score", or a bootstrap.
        drop_p_value: McNemar's exact two-sided test of the drop.
        drop_mid_p: The same as mid-p.
        drop_p_adjusted: ``drop_p_value`` after Holm's correction over all drops of the results.
        unit: "share" for shares between 0 and 1, "" for numbers without a unit, else the unit.
    """

    name: str
    value: float | None
    count: int
    successes: int | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    interval: str = "Wilson"
    higher_is_better: bool = True
    drop: float | None = None
    note: str = ""
    ties: int = 0
    drop_low: float | None = None
    drop_high: float | None = None
    drop_method: str | None = None
    drop_p_value: float | None = None
    drop_mid_p: float | None = None
    drop_p_adjusted: float | None = None
    unit: str = "share"


@dataclass(frozen=True)
class ClassFigure:
    """The figure of one class.

    Attributes:
        label: The class number.
        name: Its name; empty where it has none.
        count: Samples, objects or pixels of that class.
        value: The figure, a share; None where the class has none.
        drop: Baseline value minus this value; None for the baseline.
        drop_error: Standard error of the drop, by bootstrap over the samples.
    """

    label: int
    name: str
    count: int
    value: float | None
    drop: float | None = None
    drop_error: float | None = None


@dataclass(frozen=True)
class Draws:
    """A figure on bootstrap resamples. Two runs with the same seed and units were judged on the same ones.

    Attributes:
        seed: Seed of the resamples.
        units: What was drawn: so many samples, or pairs of samples.
        values: The figure of each resample, packed by ``calib.validation.resampling``.
    """

    seed: int
    units: int
    values: tuple[str, ...]
