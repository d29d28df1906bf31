from __future__ import annotations

import math

import numpy as np
import pytest

from calib.validation.samples import SampleErrors, rank_samples
from calib.validation.tensors import row_errors


def errors(reference: np.ndarray, *candidates: np.ndarray) -> SampleErrors:
    found = SampleErrors()
    found.add(len(reference), [row_errors(reference, candidate) for candidate in candidates])
    return found


ONES = np.ones((4, 1))


def test_outputs_are_taken_together() -> None:
    # Signal 1 + 1, noise 0.01 + 0.03: 10·log10(2 / 0.04) = 16.99 dB.
    found = errors(ONES, ONES + 0.1, ONES + math.sqrt(0.03))
    assert found.sqnr_db(0) == pytest.approx(10 * math.log10(50))
    assert found.max_abs(0) == pytest.approx(math.sqrt(0.03))
    assert len(found) == 4


def test_no_error_no_signal_and_no_bound() -> None:
    reference = np.array([[1.0], [0.0], [1.0], [np.nan]])
    candidate = np.array([[1.0], [0.5], [np.inf], [np.nan]])
    found = errors(reference, candidate)
    assert found.sqnr_values().tolist() == [math.inf, -math.inf, -math.inf, math.inf]
    assert [found.sqnr_db(index) for index in range(4)] == [None] * 4
    assert [found.max_abs(index) for index in range(4)] == [0.0, 0.5, None, 0.0]


def test_the_rank() -> None:
    found = errors(ONES, ONES + np.array([[0.0], [0.1], [0.3], [0.2]]))
    assert rank_samples(found, None, 10) == [2, 3, 1]
    assert rank_samples(found, np.array([True, True, False, False]), 10) == [1, 0, 2, 3]
    assert rank_samples(found, None, 1) == [2]
    assert rank_samples(found, np.zeros(4, bool), 10) == [2, 3, 1]


def test_of_equals_the_earlier() -> None:
    assert rank_samples(errors(ONES, ONES + 0.5), None, 3) == [0, 1, 2]
