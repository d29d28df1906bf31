from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.calibrators import (
    CALIBRATORS,
    Calibrator,
    EntropyCalibrator,
    MinMaxCalibrator,
    RangeTable,
    kernels,
    make_calibrator,
    scale_of,
)
from calib.calibrators.entropy import divergences, entropy_amax
from calib.calibrators.histogram import BINS, GrowingHistogram
from calib.calibrators.kernels import load_kernels
from calib.errors import CalibrationError, NonFiniteError, UsageError

METHODS = tuple(CALIBRATORS)


def collected(method: str, *batches: np.ndarray) -> Calibrator:
    calibrator = make_calibrator(method)
    for batch in batches:
        calibrator.collect({"x": np.asarray(batch, np.float32)})
    return calibrator


def naive_divergence(counts: np.ndarray, m: int) -> float:
    """The definition, bin by bin."""
    bins = counts.astype(float)
    bins[0] = bins[1]
    kept = bins[:m].copy()
    if np.count_nonzero(kept) < 2:
        return np.inf
    p = kept.copy()
    p[-1] += bins[m:].sum()
    q = np.zeros(m)
    levels = np.arange(m) * 128 // m
    for level in range(128):
        members = (levels == level) & (kept > 0)
        if members.any():
            q[members] = kept[levels == level].sum() / members.sum()
    p, q = p / p.sum(), q / q.sum()
    if ((p > 0) & (q == 0)).any():
        return np.inf
    filled = p > 0
    return float(np.sum(p[filled] * np.log(p[filled] / q[filled])))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fill=st.floats(0.005, 1.0), spread=st.floats(1.0, 400.0))
def test_divergences_follow_the_definition(seed: int, fill: float, spread: float) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(spread * np.exp(-np.arange(BINS) / spread)) * (rng.random(BINS) < fill)
    found = divergences(counts)
    for m in (128, 129, 500, 1024, 1999, 2048):
        assert found[m - 128] == pytest.approx(naive_divergence(counts, m), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_leading_zero_batches_change_nothing(method: str) -> None:
    values = np.array([0.5, 1, 2])
    # The smallest squared error of so few values lies a little below their maximum.
    tolerance = 1 / 256 if method == "mse" else 1 / 2048
    assert collected(method, np.zeros(3), values).compute()["x"] == pytest.approx(2.0, rel=tolerance)
    in_parts = collected(method, np.zeros(3), values).compute()["x"]
    at_once = collected(method, np.concatenate([np.zeros(3), values])).compute()["x"]
    assert in_parts == pytest.approx(at_once, abs=2.0 / 2048)


@pytest.mark.parametrize("method", METHODS)
def test_all_zero_tensor_gives_zero(method: str) -> None:
    table = collected(method, np.zeros((4, 3)), -np.zeros(7)).compute()
    assert str(table["x"]) == "0.0"
    assert table.zero == ("x",)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_refused_and_nothing_is_counted(method: str, bad: float) -> None:
    calibrator = collected(method, np.ones(5))
    before = calibrator.compute()["x"]
    broken = {"x": np.full(4, 9.0, np.float32), "y": np.array([1.0, bad, 0.0], np.float32)}
    with pytest.raises(NonFiniteError, match=r"Tensor 'y' .* of 3") as caught:
        calibrator.collect(broken)
    assert caught.value.tensor == "y"
    assert dict(calibrator.compute()) == {"x": before}


@pytest.mark.parametrize("method", METHODS)
def test_complex_values_are_refused_and_nothing_is_counted(method: str) -> None:
    """A range of their real parts alone would be 1, while |1 + 2i| is √5."""
    calibrator = make_calibrator(method)
    with pytest.raises(CalibrationError, match="Tensor 'y' holds complex numbers"):
        calibrator.collect({"x": np.ones(3, np.float32), "y": np.array([1 + 2j])})
    assert not calibrator.statistics


@pytest.mark.parametrize("method", METHODS)
def test_arrays_are_not_kept_and_empty_ones_passed_over(method: str) -> None:
    values = np.array([1.0, 2.0], np.float32)
    calibrator = make_calibrator(method)
    calibrator.collect({"x": values, "empty": np.zeros((0, 4), np.float32)})
    values[:] = 100
    table = calibrator.compute()
    assert set(table) == {"x"}
    assert table["x"] == pytest.approx(2.0, rel=1 / 256)


@pytest.mark.parametrize("method", METHODS)
def test_reset_forgets_and_computing_nothing_is_refused(method: str) -> None:
    calibrator = collected(method, np.ones(3))
    calibrator.reset()
    with pytest.raises(CalibrationError, match="No batches were collected"):
        calibrator.compute()


@pytest.mark.parametrize("method", METHODS)
def test_ragged_batches_equal_one_flat_pass(method: str) -> None:
    rng = np.random.default_rng(3)
    parts = [rng.standard_normal((4, length)) for length in (5, 9, 3)]
    # All parts reach the same maximum, so that TensorRT's grid is the same however they are cut.
    for part in parts:
        part[0, 0] = 4.0
    ragged = collected(method, *parts).compute()["x"]
    flat = collected(method, np.concatenate([part.ravel() for part in parts])).compute()["x"]
    assert ragged == flat


@given(cut=st.integers(1, 23))
def test_minmax_is_the_same_for_every_cut(cut: int) -> None:
    values = np.outer(np.arange(1, 25), np.linspace(-1, 1, 9)).astype(np.float32)
    assert collected("minmax", values[:cut], values[cut:]).compute()["x"] == 24.0


def test_entropy_clips_a_far_outlier() -> None:
    values = np.append(np.random.default_rng(0).laplace(size=100_000), 100.0)
    assert collected("entropy", values).compute()["x"] < 30


def test_entropy_of_a_constant_is_the_constant_and_half_a_bin() -> None:
    # 2048.5/2048 · 1.0: what TensorRT's caches hold for saturated tensors (hexadecimal 3c010a14).
    amax = collected("entropy", np.ones(100)).compute()["x"]
    assert amax == pytest.approx(2048.5 / 2048, rel=1e-7)
    assert np.float32(scale_of(amax)).view(np.uint32) == 0x3C010A14


def test_histogram_grows_by_doubling() -> None:
    histogram = GrowingHistogram()
    histogram.open(1.0)
    histogram.add(np.array([1.0], np.float32))
    histogram.end_batch()
    histogram.add(np.array([5.0, 0.0], np.float32))
    histogram.end_batch()
    assert histogram.limit == 8.0
    # 1.0 was in the last bin of [0, 1]; three merges of pairs take it to bin 2047 // 8 of [0, 8].
    assert np.flatnonzero(histogram.counts).tolist() == [0, 2047 // 8, 5 * 2048 // 8]
    assert histogram.total == 3


def test_values_without_a_grid_are_refused() -> None:
    with pytest.raises(CalibrationError, match=r"open\(\) must tell the largest value"):
        GrowingHistogram().add(np.ones(2, np.float32))


VALUES = st.floats(0, 20, width=16).map(lambda value: value * 1.0)
BATCHES = st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=1, max_size=8)


def counted(batches: list[list[float]], cuts: list[int]) -> GrowingHistogram:
    """Batches counted in parts of a few values, in as many histograms as ``cuts`` says, and merged."""
    first = next((max(batch) for batch in batches if max(batch) > 0), 0.0)
    merged = GrowingHistogram()
    for start, stop in zip([0, *cuts], [*cuts, len(batches)], strict=True):
        shard = GrowingHistogram()
        if first:
            shard.open(first)
        for batch in batches[start:stop]:
            for place in range(0, len(batch), 2):
                part = np.array(batch[place : place + 2], np.float32)
                shard.add(part)
            shard.end_batch()
        merged.merge(GrowingHistogram.from_state(shard.state()))
    return merged


def by_the_rule(batches: list[list[float]]) -> tuple[float, list[int]]:
    """The rule in whole batches: grow, then count, the top edge into the last bin."""
    limit, counts = 0.0, [0] * BINS
    for batch in batches:
        largest = max(batch)
        limit = limit or largest
        while limit and largest > limit:
            limit *= 2
            counts = [counts[2 * i] + counts[2 * i + 1] for i in range(BINS // 2)] + [0] * (BINS // 2)
        for value in batch:
            counts[min(int(value * BINS / limit), BINS - 1) if limit else 0] += 1
    return limit, counts


@given(batches=BATCHES, data=st.data())
def test_parts_and_shards_change_no_bit(batches: list[list[float]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(batches)), max_size=3)))
    histogram = counted(batches, cuts)
    limit, counts = by_the_rule(batches)
    assert histogram.limit == limit
    assert histogram.counts.tolist() == counts


@pytest.mark.parametrize("multiple", [1.0, 1.5, 2.0, 4.0])
def test_values_at_the_edge_of_the_grid(multiple: float) -> None:
    """A saturating tensor touches R in every batch; another batch may grow past it before or after."""
    batches = [[1.0, 0.3], [1.0, 1.0], [multiple, 1.0], [1.0, 0.2], [2.0, 1.0, 0.7]]
    for cuts in ([], [1], [2], [3], [1, 3], [2, 4], [1, 2, 3, 4]):
        limit, counts = by_the_rule(batches)
        histogram = counted(batches, cuts)
        assert (histogram.limit, histogram.counts.tolist()) == (limit, counts), cuts


def test_histograms_of_different_grids_do_not_merge() -> None:
    first, second = GrowingHistogram(), GrowingHistogram()
    first.open(1.0)
    second.open(1.5)
    with pytest.raises(CalibrationError, match=r"The grids differ: they begin at 1\.0 and 1\.5"):
        first.merge(second)


def test_calibrators_of_different_grids_stay_as_they_are() -> None:
    first, second = EntropyCalibrator(), EntropyCalibrator()
    first.collect({"p": np.ones(3, np.float32), "q": np.ones(3, np.float32)})
    second.collect({"p": np.ones(3, np.float32), "q": np.full(3, 2, np.float32), "r": np.ones(3, np.float32)})
    with pytest.raises(CalibrationError, match=r"that of tensor 'q' begins at 1\.0 and 2\.0"):
        first.merge(second)
    # "p" and "r" would merge, but a calibrator that holds them alone is neither of the two.
    assert {name: known.total for name, known in first.statistics.items()} == {"p": 3, "q": 3}


@given(st.floats(2.0**-140, 2.0**80, width=32), st.integers(0, 40), st.integers(0, 2048))
def test_bin_is_that_of_exact_division(limit: float, doublings: int, numerator: int) -> None:
    """Against fractions, at whole quotients and one float beside them."""
    histogram = GrowingHistogram()
    histogram.open(limit)
    histogram._grow_by(doublings)
    near = np.float32(float(numerator) / 2048 * histogram.limit)
    for value in {near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))}:
        if 0 < value <= histogram.limit:
            one = GrowingHistogram.from_state(histogram.state())
            one.add(np.array([value]))
            one.end_batch()
            exact = Fraction(float(value)) * 2048 / Fraction(histogram.limit)
            assert np.flatnonzero(one.counts).tolist() == [min(int(exact), 2047)]


@pytest.mark.parametrize("seed", range(3))
def test_compiled_and_plain_loops_give_the_same(seed: int) -> None:
    values = np.random.default_rng(seed).standard_t(2, 100_001).astype(np.float32)
    largest = float(np.abs(values).max())
    results = []
    for loops in (load_kernels(), kernels.plain_kernels()):
        counts = np.zeros(2050, np.int64)
        loops.tally(values, 2048 / largest, counts)
        results.append((loops.largest(values), counts.tolist()))
    assert results[0] == results[1]
    assert results[0][0] == int(np.float32(largest).view(np.uint32))
    assert sum(results[0][1]) == values.size


def test_entropy_without_a_usable_candidate_keeps_everything() -> None:
    counts = np.zeros(BINS, np.int64)
    counts[2000] = 10
    assert entropy_amax(counts, 2.0) == np.float32(2048.5 * 2.0 / 2048)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", [EntropyCalibrator, MinMaxCalibrator])
def test_float_types(kind: type[Calibrator], dtype: type[np.floating]) -> None:
    calibrator = kind()
    calibrator.collect({"x": np.linspace(-3, 2, 1000).astype(dtype)})
    assert calibrator.compute()["x"] == pytest.approx(3.0, rel=1e-3)


def test_range_table_refuses_what_is_no_range() -> None:
    with pytest.raises(CalibrationError, match="'x' must be finite and ≥ 0, got nan"):
        RangeTable({"x": float("nan")})
    with pytest.raises(CalibrationError, match="'x' must be finite and ≥ 0, got -1"):
        RangeTable({"x": -1.0})


def test_range_table_arranges_copies() -> None:
    table = RangeTable({"a": 1.0, "b": 2.0})
    arranged = table.arranged({"b": "b", "pool": "b", "gone": "c", "a": "a"})
    assert list(arranged.items()) == [("b", 2.0), ("pool", 2.0), ("a", 1.0)]


def test_unknown_method_is_named_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"got 'entropi'\. Did you mean 'entropy'\?"):
        make_calibrator("entropi")


@pytest.mark.parametrize("method", ["entropy", "minmax", "percentile", "mse"])
def test_arrays_that_cannot_be_written_are_counted_all_the_same(method: str) -> None:
    values = np.random.default_rng(3).standard_normal((64, 33)).astype(np.float32)
    writable, frozen = make_calibrator(method), make_calibrator(method)
    writable.collect({"x": values.copy()})
    values.flags.writeable = False
    frozen.collect({"x": values})
    assert frozen.compute()["x"] == writable.compute()["x"]


@pytest.mark.parametrize("method", ["entropy", "minmax", "percentile", "mse"])
@pytest.mark.parametrize("first", [0.0, 0.75], ids=["zeros before", "scores before"])
def test_masks_of_the_largest_float_give_a_finite_range(method: str, first: float) -> None:
    # Half a bin above it, and the power of two above 0.75 that covers it, are beyond float32.
    largest = np.finfo(np.float32).max
    calibrator = make_calibrator(method)
    calibrator.collect({"mask": np.full(64, first, np.float32)})
    calibrator.collect({"mask": np.where(np.arange(640) < 600, -largest, np.float32(0))})
    assert calibrator.compute()["mask"] == pytest.approx(float(largest), rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_numpy_that_raises_what_it_passes_over_elsewhere_changes_nothing(method: str) -> None:
    """1e-60 is zero as float32; a range of 1e-44 has a scale that is."""
    values = np.append(np.linspace(-1, 1, 1000), [1e-60, 1e-310])
    expected = collected(method, values).compute()["x"]
    with np.errstate(all="raise"):
        calibrator = make_calibrator(method)
        calibrator.collect({"x": values})
        assert calibrator.compute()["x"] == expected
        assert RangeTable({"x": 1e-44}).scales == {"x": 0.0}
        assert scale_of(1e39) == np.inf
