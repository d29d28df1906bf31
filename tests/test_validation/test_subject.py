from __future__ import annotations

import numpy as np
import pytest

from calib.data import from_arrays
from calib.errors import DatasetError, UsageError
from calib.validation.subject import batches, latency_batch, open_subject

DATASET = from_arrays("d", {"x": np.arange(10.0).reshape(5, 2)}, labels=[0, 0, 0, 1, 1])


def test_a_fixed_batch_is_filled_with_the_last_sample() -> None:
    pairs = list(batches(DATASET, 100, fixed=3))
    assert [(len(batch), len(fed)) for batch, fed in pairs] == [(3, 3), (2, 3)]
    assert pairs[1][1].inputs["x"].tolist() == [[6, 7], [8, 9], [8, 9]]
    assert pairs[1][1].origins[2] == pairs[1][0].origins[1]
    assert pairs[1][1].labels == (1, 1, 1)


def test_a_free_batch_is_fed_as_it_is() -> None:
    pairs = list(batches(DATASET, 4, fixed=None))
    assert all(batch is fed for batch, fed in pairs)
    assert [len(batch) for batch, _ in pairs] == [4, 1]


def test_a_full_batch_is_not_copied() -> None:
    (batch,) = DATASET.batches(5)
    assert batch.filled(5) is batch


def test_a_latency_batch_may_be_larger_than_the_dataset() -> None:
    batch = latency_batch(DATASET, 7)
    assert batch.inputs["x"][:, 0].tolist() == [0, 2, 4, 6, 8, 0, 2]


def test_calibration_samples_are_left_out_and_counted() -> None:
    subject = open_subject(DATASET, exclude={"d#1", "d#4", "other#0"})
    assert subject.dataset.ids == ("d#0", "d#2", "d#3")
    assert subject.dataset.notes == ("Left out 2 of 5 samples: they were calibrated on.",)
    assert (subject.task, subject.recipe) == (None, None)


def test_overlap_may_be_allowed() -> None:
    assert len(open_subject(DATASET, exclude={"d#1"}, allow_overlap=True).dataset) == 5


def test_a_choice_keeps_the_order_and_the_classes() -> None:
    ids = open_subject(DATASET, samples=3, seed=2).dataset.ids
    assert list(ids) == sorted(ids)
    assert len(set(ids)) == 3
    assert {"d#3", "d#4"} & set(ids)
    assert open_subject(DATASET, samples=3, seed=2).dataset.ids == ids


def test_too_few_are_left() -> None:
    with pytest.raises(UsageError, match="5 validation samples are wanted, but dataset 'd' has 4"):
        open_subject(DATASET, samples=5, exclude={"d#0"})
    with pytest.raises(DatasetError, match="No samples: the calibration names all 5 ids"):
        open_subject(DATASET, exclude=DATASET.ids)
