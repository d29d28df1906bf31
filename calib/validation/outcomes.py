"""What differences are made of, packed: right or wrong, a bit a sample, and errors, two numbers a sample."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from calib.errors import ValidationError
from calib.validation.results import PrecisionRun, Results
from calib.wording import counted, inflected

__all__ = [
    "SHARE_METRICS",
    "answer_hits",
    "hits_of",
    "pack_hits",
    "pack_powers",
    "unpack_hits",
    "unpack_powers",
]

SHARE_METRICS = ("top1", "top5", "exact_match")
"""Shares of right answers, which the baseline has too; results may have others."""

_LINE = 76
_WIDE_LINE = 4096


def pack_hits(hits: npt.ArrayLike) -> tuple[str, ...]:
    """Packs truth values, eight a byte, as base64 in lines of 76 characters.

    A line holds 456 samples, so that a change of one sample changes one line of a file.

    Args:
        hits: Shape [samples].

    >>> pack_hits([True, False, True])
    ('oA==',)
    """
    bits = np.packbits(np.asarray(hits, np.bool_))
    return _lines(bits.tobytes(), _LINE)


def _lines(content: bytes, width: int) -> tuple[str, ...]:
    text = base64.b64encode(content).decode("ascii")
    return tuple(text[start : start + width] for start in range(0, len(text), width))


def pack_powers(powers: npt.ArrayLike) -> tuple[str, ...]:
    """Packs the signal and noise power of each sample as float32, little-endian, in base64.

    Args:
        powers: Shape [2, samples]: Σ reference² and Σ error² of each sample.

    Returns:
        Nothing where a power does not fit float32: a difference could not be made from it.

    >>> unpack_powers(pack_powers([[4.0, 9.0], [0.5, 0.25]]), 2).tolist()
    [[4.0, 9.0], [0.5, 0.25]]
    """
    with np.errstate(over="ignore"):
        narrow = np.asarray(powers, np.float64).astype("<f4")
    return _lines(narrow.tobytes(), _WIDE_LINE) if np.isfinite(narrow).all() else ()


def unpack_powers(lines: Sequence[str], count: int, source: str = "errors") -> npt.NDArray[np.float64]:
    """Reads what ``pack_powers`` wrote; shape [2, samples].

    Args:
        lines: The lines.
        count: Number of samples.
        source: What they belong to, for messages.

    Raises:
        ValidationError: They are not base64, or of another number of samples.
    """
    packed = _decoded(lines, source)
    if len(packed) != 8 * count:
        raise ValidationError(
            f"{source}: {counted(len(packed), 'byte[s]')} of packed errors "
            f"{inflected(len(packed), '[does|do]')} not fit "
            f"{counted(count, 'sample[s]')}, which take "
            f"{8 * count}. The file was cut or edited: make it again."
        )
    return np.frombuffer(packed, "<f4").reshape(2, count).astype(np.float64)


def _decoded(lines: Sequence[str], source: str) -> bytes:
    try:
        return base64.b64decode("".join(lines), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValidationError(f"{source}: the packed values are not base64: {error}.") from error


def unpack_hits(lines: Sequence[str], count: int, source: str = "outcomes") -> npt.NDArray[np.bool_]:
    """Reads what ``pack_hits`` wrote.

    Args:
        lines: The lines.
        count: Number of samples.
        source: What they belong to, for messages.

    Raises:
        ValidationError: They are not base64, or of another number of samples.

    >>> unpack_hits(("oA==",), 3).tolist()
    [True, False, True]
    """
    packed = _decoded(lines, source)
    if len(packed) != (count + 7) // 8:
        raise ValidationError(
            f"{source}: {counted(len(packed), 'byte[s]')} of packed answers "
            f"{inflected(len(packed), '[does|do]')} not fit "
            f"{counted(count, 'sample[s]')}, which take "
            f"{(count + 7) // 8}. The file was cut or edited: make it again."
        )
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=count)
    return bits.astype(np.bool_)


def hits_of(results: Results, run: PrecisionRun, metric: str) -> npt.NDArray[np.bool_] | None:
    """Whether a run is right, for every sample of its results.

    Args:
        results: The results that hold the run.
        run: One of its runs.
        metric: "top1", "top5", "exact_match", or another share.

    Returns:
        Shape [samples]; None where there are no labels, or the run has no such answers.

    Raises:
        ValidationError: The numbers of answers, labels and samples differ.
    """
    count = len(results.sample_ids)
    if metric in run.outcomes:
        return unpack_hits(run.outcomes[metric], count, f"{run.label} {metric}")
    return answer_hits(results, run) if metric == "top1" else None


def answer_hits(results: Results, run: PrecisionRun) -> npt.NDArray[np.bool_] | None:
    """Whether a run's class is the label's, for every sample of its results.

    Args:
        results: The results that hold the run.
        run: One of its runs.

    Returns:
        Shape [samples]; None where there are no labels, or the run answers with no classes.

    Raises:
        ValidationError: The numbers of answers, labels and samples differ.
    """
    count = len(results.sample_ids)
    if run.predictions is None or results.labels is None:
        return None
    if not len(run.predictions) == len(results.labels) == count:
        raise ValidationError(
            f"{run.label} has {counted(len(run.predictions), 'answer[s]')} and "
            f"{counted(len(results.labels), 'label[s]')} for {count} "
            "samples: the results file was cut or edited. Run the validation again."
        )
    predictions, labels = np.asarray(run.predictions, np.int64), np.asarray(results.labels, np.int64)
    right: npt.NDArray[np.bool_] = (predictions == labels) & (labels >= 0)
    return right
