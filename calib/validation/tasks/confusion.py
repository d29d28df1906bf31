"""Which class is taken for which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_CONFUSIONS", "confused_answers", "frequent_confusions"]

MOST_CONFUSIONS = 200
"""So many pairs of class and answer are kept; the rest is rare."""


def confused_answers(labels: npt.ArrayLike, answers: npt.ArrayLike) -> tuple[tuple[int, int, int], ...]:
    """The most frequent wrong answers.

    Args:
        labels: Class of each sample, shape [samples].
        answers: Answer to each sample.

    Returns:
        Class, answer and count, the highest count first; of equals the lower class and answer.

    >>> confused_answers([0, 1, 1, 1], [1, 0, 0, 1])
    ((1, 0, 2), (0, 1, 1))
    """
    pairs = np.stack([np.asarray(labels, np.int64), np.asarray(answers, np.int64)])
    found, counts = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1, return_counts=True)
    return _frequent(found[0], found[1], counts)


def frequent_confusions(matrix: npt.NDArray[np.int64]) -> tuple[tuple[int, int, int], ...]:
    """The most frequent wrong answers of a confusion matrix.

    Args:
        matrix: How often class i was answered with j, shape [classes, classes].

    Returns:
        As ``confused_answers``.

    >>> frequent_confusions(np.array([[5, 1], [2, 7]]))
    ((1, 0, 2), (0, 1, 1))
    """
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    rows, columns = np.nonzero(wrong)
    return _frequent(rows, columns, wrong[rows, columns])


def _frequent(
    rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[tuple[int, int, int], ...]:
    order = np.argsort(-counts, kind="stable")[:MOST_CONFUSIONS]
    return tuple((int(rows[i]), int(columns[i]), int(counts[i])) for i in order)
