from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial import distance
from sklearn.metrics import max_error, mean_absolute_error

from calib.errors import ValidationError
from calib.validation.results import OutputError
from calib.validation.tensors import ErrorAccumulator, row_errors


def compare(reference: np.ndarray, candidate: np.ndarray) -> OutputError:
    errors = ErrorAccumulator("y")
    errors.add(reference, candidate)
    return errors.result()


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    reference = rng.normal(size=(5, 3, 4)).astype(np.float32)
    return reference, (reference + rng.normal(scale=0.1, size=reference.shape)).astype(np.float32)


def test_figures_equal_sklearn_and_scipy(pair: tuple[np.ndarray, np.ndarray]) -> None:
    reference, candidate = (array.astype(np.float64).ravel() for array in pair)
    found = compare(*pair)
    assert found.elements == 60
    assert found.max_abs == pytest.approx(max_error(reference, candidate), rel=1e-12)
    assert found.mean_abs == pytest.approx(mean_absolute_error(reference, candidate), rel=1e-12)
    assert found.cosine == pytest.approx(1 - distance.cosine(reference, candidate), rel=1e-12)
    noise = np.var(candidate - reference) + np.mean(candidate - reference) ** 2
    signal = np.var(reference) + np.mean(reference) ** 2
    assert found.sqnr_db == pytest.approx(10 * math.log10(signal / noise), rel=1e-12)
    assert found.reference_amax == np.abs(reference).max()
    assert (found.verdict, found.note) == ("differs", "")


@pytest.mark.parametrize(
    ("dtype", "reference", "candidate", "distance_"),
    [
        ("uint8", 0, 1, 1),
        ("uint8", 255, 0, 255),
        ("int8", -128, 127, 255),
        ("float16", 60000, -60000, 120_000),
        ("int32", -(2**31), 2**31 - 1, 2**32 - 1),
        ("int64", -(2**63), 2**63 - 1, 2**64),  # 2^64 − 1 is not a float64; the nearest is 2^64
        ("int64", 2**53, 2**53 + 1, 1),
        ("uint64", 2**63 + 1, 2**63, 1),
        ("bool", False, True, 1),
    ],
)
def test_values_are_not_compared_in_their_own_type(
    dtype: str, reference: int, candidate: int, distance_: int
) -> None:
    """A-V2."""
    left, right = np.array([[reference]], dtype), np.array([[candidate]], dtype)
    assert compare(left, right).max_abs == distance_


def test_types_of_the_two_sides_may_differ() -> None:
    found = compare(np.array([[1.5, 2.0]], np.float32), np.array([[1.5, 2.5]], np.float16))
    assert found.max_abs == 0.5


@pytest.mark.parametrize(
    ("reference", "candidate", "verdict", "counts"),
    [
        ([1.0, 2.0], [1.0, math.nan], "candidate not finite", (1, 0, 0)),
        ([1.0, 2.0], [math.nan, -math.inf], "candidate not finite", (2, 0, 0)),
        ([1.0, math.nan], [1.0, math.nan], "both not finite", (1, 1, 1)),
        ([1.0, math.nan], [1.0, 5.0], "baseline not finite", (0, 1, 0)),
        ([math.nan, 2.0], [1.0, math.inf], "candidate not finite", (1, 1, 0)),
    ],
)
def test_values_that_are_not_finite_are_counted_and_judged(
    reference: list[float], candidate: list[float], verdict: str, counts: tuple[int, int, int]
) -> None:
    """A-V1."""
    found = compare(np.array([reference]), np.array([candidate]))
    assert found.verdict == verdict
    assert (found.non_finite, found.reference_non_finite, found.both_non_finite) == counts


def test_one_nan_in_a_thousand_leaves_no_figure_that_looks_good() -> None:
    """A-V1."""
    reference = np.ones((1, 1000), np.float32)
    candidate = reference.copy()
    candidate[0, 17] = np.nan
    found = compare(reference, candidate)
    assert (found.max_abs, found.mean_abs, found.cosine, found.sqnr_db) == (None,) * 4
    assert "1 of 1000 values are NaN or infinite where the baseline's are finite" in found.note


def test_both_nan_says_that_fp32_is_broken_and_measures_the_rest() -> None:
    reference = np.array([[np.nan, 3.0, 4.0]])
    found = compare(reference, np.array([[np.nan, 3.0, 4.5]]))
    assert "the FP32 model is already broken" in found.note
    assert found.max_abs == 0.5
    assert found.mean_abs == 0.25  # over the two values that can be compared
    assert found.sqnr_db == pytest.approx(20.0)  # 25 / 0.25 = 100


def test_nothing_but_nan_has_no_figures() -> None:
    found = compare(np.full((2, 2), np.nan), np.full((2, 2), np.nan))
    assert found.verdict == "both not finite"
    assert (found.max_abs, found.mean_abs, found.cosine, found.reference_amax) == (None,) * 4


@pytest.mark.parametrize(
    ("reference", "candidate", "cosine", "verdict", "note"),
    [
        ([1.0, 0.0], [0.0, 0.0], 0.0, "differs", "the candidate is all zero"),
        ([0.0, 0.0], [1.0, 0.0], 0.0, "differs", "the baseline is all zero"),
        ([0.0, 0.0], [0.0, 0.0], 1.0, "equal", "no error at all, all zero"),
        ([0.1, 0.7], [0.1, 0.7], 1.0, "equal", "no error at all; SQNR is infinite"),
    ],
)
def test_zero_norms(
    reference: list[float], candidate: list[float], cosine: float, verdict: str, note: str
) -> None:
    """A-V3."""
    found = compare(np.array([reference]), np.array([candidate]))
    assert (found.cosine, found.verdict) == (cosine, verdict)
    assert found.note.startswith(note)


def test_a_candidate_of_zeros_has_0_db() -> None:
    assert compare(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0]])).sqnr_db == 0.0


def test_empty_on_both_sides_is_equal() -> None:
    """A-V5."""
    found = compare(np.zeros((0, 6), np.float32), np.zeros((0, 6), np.float32))
    assert (found.verdict, found.note, found.elements) == ("equal", "empty on both sides", 0)
    assert (found.max_abs, found.mean_abs, found.cosine, found.sqnr_db) == (None,) * 4


def test_lost_detections_are_counted() -> None:
    """A-V5."""
    errors = ErrorAccumulator("boxes")
    assert errors.add(np.ones((3, 6)), np.ones((0, 6))) is None
    assert errors.add(np.ones((2, 6)), np.ones((2, 6))) is not None
    found = errors.result()
    assert found.verdict == "rows differ"
    assert found.note.startswith("3 rows lost and 0 rows gained")
    assert (found.max_abs, found.sqnr_db) == (None, None)


@pytest.mark.parametrize(
    ("before", "after", "lost", "gained"),
    [((1, 3, 6), (1, 0, 6), 3, 0), ((4, 2, 6), (4, 5, 6), 0, 12), ((3, 8, 8), (1, 8, 8), 2, 0)],
)
def test_lost_boxes_of_a_batch_are_counted(
    before: tuple[int, ...], after: tuple[int, ...], lost: int, gained: int
) -> None:
    """A-V5, for [N, boxes, 6]: 4 samples of 3 boxes more are 12; for masks [n, H, W] n is what differs."""
    found = compare(np.ones(before), np.ones(after))
    assert found.verdict == "rows differ"
    assert f"{lost} rows lost and {gained} rows gained" in found.note
    assert (found.max_abs, found.sqnr_db) == (None, None)


def test_other_sizes_than_those_of_boxes_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"shape \(4, 9\) .* and \(4, 7\) .*as NonZero's does"):
        compare(np.ones((4, 9)), np.ones((4, 7)))
    with pytest.raises(ValidationError, match="not the same model"):
        compare(np.ones((1, 3, 6)), np.ones((1, 3, 5)))


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 1), (6,), ()])
def test_other_shapes_name_the_output(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match=r"Output 'y' has shape \(2, 3\) in the baseline"):
        compare(np.zeros((2, 3)), np.zeros(shape))


@pytest.mark.parametrize("array", [np.array([["a"]]), np.array([[1j]]), np.array([[None]])])
def test_values_must_be_real_numbers(array: np.ndarray) -> None:
    with pytest.raises(ValidationError, match=r"Output 'y' of the baseline holds .* not a real number"):
        compare(array, array)


def test_a_scalar_output() -> None:
    found = compare(np.array(3.0), np.array(2.5))
    assert (found.elements, found.max_abs) == (1, 0.5)


def test_huge_float64_values_have_no_sqnr_but_a_note() -> None:
    found = compare(np.array([[1e200]]), np.array([[-1e200]]))
    assert found.max_abs == 2e200
    assert found.sqnr_db is None
    assert "overflow" in found.note


def test_rows_are_summed_one_by_one() -> None:
    rows = row_errors(np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([[3.0, 4.5], [0.0, 3.0]]))
    assert rows.error_power.tolist() == [0.25, 5.0]
    assert rows.reference_power.tolist() == [25.0, 2.0]
    assert rows.max_abs.tolist() == [0.5, 2.0]


def test_blocks_of_rows_change_nothing(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[np.ndarray, np.ndarray]
) -> None:
    whole = compare(*pair)
    monkeypatch.setattr("calib.validation.tensors._BLOCK", 24)
    assert compare(*pair) == whole


values = st.floats(-1e6, 1e6, width=32)


@settings(deadline=None)
@given(
    reference=hnp.arrays(np.float32, (9, 4), elements=values),
    candidate=hnp.arrays(np.float32, (9, 4), elements=values),
    cuts=st.sets(st.integers(1, 8)),
)
def test_the_cut_into_batches_changes_nothing(
    reference: np.ndarray, candidate: np.ndarray, cuts: set[int]
) -> None:
    whole, parts = compare(reference, candidate), ErrorAccumulator("y")
    for left, right in zip(np.split(reference, sorted(cuts)), np.split(candidate, sorted(cuts)), strict=True):
        parts.add(left, right)
    found = parts.result()
    assert (found.elements, found.max_abs, found.reference_amax, found.verdict) == (
        whole.elements,
        whole.max_abs,
        whole.reference_amax,
        whole.verdict,
    )
    for name in ("mean_abs", "cosine", "sqnr_db"):
        expected = getattr(whole, name)
        if expected is not None:
            expected = pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert getattr(found, name) == expected


@settings(deadline=None)
@given(
    reference=hnp.arrays(np.float32, (3, 5), elements=st.floats(width=32)),
    candidate=hnp.arrays(np.float32, (3, 5), elements=st.floats(width=32)),
)
def test_no_figure_is_ever_nan_or_infinite(reference: np.ndarray, candidate: np.ndarray) -> None:
    found = compare(reference, candidate)
    for name in ("max_abs", "mean_abs", "cosine", "sqnr_db", "reference_amax"):
        value = getattr(found, name)
        assert value is None or math.isfinite(value)
    assert found.non_finite == np.count_nonzero(~np.isfinite(candidate))
    assert found.reference_non_finite == np.count_nonzero(~np.isfinite(reference))
