"""Figures of any task as text: their names, units and directions."""

from __future__ import annotations

from dataclasses import dataclass

from calib.report import numbers
from calib.report.blocks import Tone
from calib.report.changes import CHANCE
from calib.report.merge import Merged
from calib.report.text import visible
from calib.validation.results import Metric

__all__ = [
    "Wording",
    "interval_text",
    "loss_interval_text",
    "loss_text",
    "loss_tone",
    "main_metric",
    "other_metrics",
    "sentence_start",
    "value_text",
    "wording",
]

_AGREEMENT = "_agreement"

_LEAST_OF_DECIMALS = 0.01
"""Of smaller numbers three decimals tell a digit at most."""


@dataclass(frozen=True)
class Wording:
    """What a figure is called.

    Attributes:
        title: As the head of a column.
        phrase: Within a sentence.
    """

    title: str
    phrase: str


_WORDS = {
    "top1": Wording("Top-1", "top-1 accuracy"),
    "macro_f1": Wording("Macro F1", "macro F1"),
    "mAP": Wording("mAP", "mAP"),
    "mIoU": Wording("mIoU", "mIoU"),
    "pixel_accuracy": Wording("Pixel accuracy", "pixel accuracy"),
    "R2": Wording("R²", "R²"),
    "spearman": Wording("Spearman", "Spearman's correlation"),
    "pearson": Wording("Pearson", "Pearson's correlation"),
    "exact_match": Wording("Exact match", "share of exact matches"),
    "CER": Wording("Character error", "character error rate"),
    "top1_agreement": Wording("Top-1 agreement", "top-1 agreement with the baseline"),
    "detection_agreement": Wording("Detection agreement", "agreement of detections with the baseline"),
    "pixel_agreement": Wording("Pixel agreement", "agreement of pixels with the baseline"),
    "text_agreement": Wording("Text agreement", "agreement of texts with the baseline"),
    "embedding_agreement": Wording("Embedding agreement", "cosine of embeddings with the baseline's"),
}


def wording(name: str) -> Wording:
    """The words for a figure.

    >>> wording("top3").title, wording("mAP50").phrase
    ('Top-3', 'mAP50')
    """
    if name in _WORDS:
        return _WORDS[name]
    known = visible(name)
    if name.startswith("top") and name[3:].isdigit():
        return Wording(f"Top-{name[3:]}", f"top-{name[3:]} accuracy")
    return Wording(known, known)


def sentence_start(phrase: str) -> str:
    """A phrase at the start of a sentence or as a title; "mAP" stays as it is.

    >>> sentence_start("top-1 accuracy"), sentence_start("mAP"), sentence_start("R²")
    ('Top-1 accuracy', 'mAP', 'R²')
    """
    first = phrase.split()[0]
    return phrase[0].upper() + phrase[1:] if first == first.lower() else phrase


def main_metric(merged: Merged) -> str:
    """The figure that speaks for the results: the task's main one, else agreement with FP32, else nothing."""
    wanted = [source.results.judged_by for source in merged.sources]
    agreement = [
        metric.name for row in merged.rows for metric in row.run.metrics if metric.name.endswith(_AGREEMENT)
    ]
    for name in (*wanted, *agreement):
        if any((metric := row.metric(name)) and metric.value is not None for row in merged.rows):
            return name
    return ""


def other_metrics(merged: Merged, main: str) -> tuple[str, ...]:
    """The other figures in the results' order, agreement with FP32 last."""
    names = dict.fromkeys(metric.name for row in merged.rows for metric in row.run.metrics)
    rest = [name for name in names if name != main]
    return tuple(sorted(rest, key=lambda name: name.endswith(_AGREEMENT)))


def value_text(metric: Metric) -> str:
    """A figure with its unit.

    >>> value_text(Metric("RMSE", 1.23456, 9, unit="mm")), value_text(Metric("mAP", 0.3741, 9))
    ('1.23 mm', '37.4%')
    >>> value_text(Metric("R2", 0.0712, 9, unit="")), value_text(Metric("MAE", 2.263e-7, 9, unit="m"))
    ('0.071', '2.26e−7 m')
    """
    if metric.unit == "share":
        return numbers.percent(metric.value, metric.count)
    return _with_unit(_plain(metric.value), metric.unit)


def _plain(value: float | None) -> str:
    """Correlations and the like keep three decimals; other numbers three digits, so that none reads as 0."""
    if value is None or not numbers.known(value):
        return numbers.MISSING
    decimals = value == 0 or _LEAST_OF_DECIMALS <= abs(value) <= 1
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}") if decimals else numbers.significant(value)


def _with_unit(text: str, unit: str) -> str:
    return text if not unit or text == numbers.MISSING else f"{text} {visible(unit)}"


def interval_text(metric: Metric) -> str:
    """The interval of a figure; ``MISSING`` where there is none.

    >>> interval_text(Metric("RMSE", 1.2, 9, low=1.1, high=1.345, unit="mm"))
    '1.10 to 1.34 mm'
    """
    if metric.unit == "share":
        return numbers.interval(metric.low, metric.high, metric.count)
    ends = _plain(metric.low), _plain(metric.high)
    return numbers.MISSING if numbers.MISSING in ends else _with_unit(" to ".join(ends), metric.unit)


def loss_tone(metric: Metric) -> Tone:
    """How a reader should take a loss: bad or good only where chance alone would hardly show it.

    The exact test decides where there is one, else the interval; without either nothing is known.

    >>> loss_tone(Metric("top1", 0.9, 100, drop=0.02, drop_low=-0.01, drop_high=0.05))
    ''
    >>> loss_tone(Metric("RMSE", 1.5, 9, higher_is_better=False, drop=-0.5, drop_low=-0.6, drop_high=-0.4))
    'bad'
    """
    loss = _loss_of(metric)
    if not loss or not _is_shown(metric):
        return ""
    return "bad" if loss > 0 else "good"


def _loss_of(metric: Metric) -> float | None:
    """How much worse a figure is than the baseline's: a drop, or a rise where lower is better."""
    if metric.drop is None:
        return None
    return metric.drop if metric.higher_is_better else -metric.drop


def _is_shown(metric: Metric) -> bool:
    if metric.drop_p_value is not None:
        return metric.drop_p_value < CHANCE
    low, high = metric.drop_low, metric.drop_high
    return low is not None and high is not None and not low <= 0 <= high


def loss_text(metric: Metric, *, signed: bool = True) -> str:
    """A loss: points of shares, else a number in the figure's unit.

    >>> loss_text(Metric("RMSE", 1.5, 9, higher_is_better=False, drop=-0.5, unit="mm"))
    '+0.500 mm'
    """
    loss = _loss_of(metric)
    if loss is None:
        return numbers.MISSING
    if metric.unit == "share":
        return numbers.points(loss, metric.count) if signed else numbers.unsigned_points(loss, metric.count)
    text = _plain(abs(loss))
    sign = "" if not loss or not signed else "+" if loss > 0 else "\N{MINUS SIGN}"
    return _with_unit(sign + text, metric.unit)


def loss_interval_text(metric: Metric) -> str:
    """The interval of a loss; ``MISSING`` where there is none.

    >>> loss_interval_text(Metric("top1", 0.9, 100, drop=0.02, drop_low=-0.01, drop_high=0.05))
    '−1.0 to +5.0'
    """
    low, high = metric.drop_low, metric.drop_high
    if low is None or high is None:
        return numbers.MISSING
    if not metric.higher_is_better:
        low, high = -high, -low
    if metric.unit == "share":
        return numbers.points_interval(low, high, metric.count)
    ends = [("+" if value > 0 else "") + _plain(value) for value in (low, high)]
    return _with_unit(" to ".join(ends), metric.unit)
