from __future__ import annotations

import io
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from calib.calibrators import (
    CALIBRATORS,
    Calibrator,
    MagnitudeCalibrator,
    MagnitudeHistogram,
    MinMaxCalibrator,
    MSECalibrator,
    PercentileCalibrator,
    make_calibrator,
)
from calib.errors import CalibrationError, NonFiniteError, UsageError

METHODS = ("percentile", "mse")
LARGEST = float(np.finfo(np.float32).max)

# Every octave that float32 has, zeros and subnormals among them.
floats = st.lists(
    st.one_of(
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 1.2e-38, LARGEST, -LARGEST]),
        st.floats(-4, 4, width=32),
    ),
    min_size=1,
    max_size=60,
).map(lambda values: np.array(values, np.float32))


def counted(*batches: np.ndarray) -> MagnitudeHistogram:
    histogram = MagnitudeHistogram()
    for batch in batches:
        histogram.add(batch)
    return histogram


def made(method: str) -> MagnitudeCalibrator:
    calibrator = make_calibrator(method)
    assert isinstance(calibrator, MagnitudeCalibrator)
    return calibrator


def assert_same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert list(one) == list(other)
    for key, array in one.items():
        np.testing.assert_array_equal(array, other[key], err_msg=key, strict=True)


def saved_and_read(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        return dict(read)


def by_definition(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fine and low counts from frexp, a value at a time."""
    fine, low = np.zeros((16, 2048), np.int64), np.zeros((256, 32), np.int64)
    magnitudes = [abs(float(v)) for v in values]
    top = int(np.frexp(max(magnitudes))[1])
    for value in magnitudes:
        mantissa, exponent = np.frexp(value)
        position = 2 * mantissa - 1
        if value < 2.0**-126:
            low[0, 0] += 1
        elif exponent > top - 16:
            fine[15 + exponent - top, int(position * 2048)] += 1
        else:
            low[exponent + 126, int(position * 32)] += 1
    return fine, low


@settings(deadline=None)  # the first call compiles or loads the loops
@given(values=floats, data=st.data())
def test_state_is_the_same_for_every_order_cut_and_merge(values: np.ndarray, data: st.DataObject) -> None:
    shuffled = values[data.draw(st.permutations(range(values.size)))]
    cuts = sorted(data.draw(st.lists(st.integers(0, values.size), max_size=5)))
    parts = np.split(shuffled, cuts)
    assert_same_state(counted(*parts).state(), counted(values).state())
    merged = MagnitudeHistogram()
    for part in data.draw(st.permutations(parts)):
        merged.merge(counted(part))
    assert_same_state(merged.state(), counted(values).state())


@settings(deadline=None)
@given(values=floats)
def test_counts_are_those_of_the_definition(values: np.ndarray) -> None:
    histogram = counted(values)
    if histogram.top > 0:
        fine, low = by_definition(values)
        np.testing.assert_array_equal(histogram.fine, fine)
        np.testing.assert_array_equal(histogram.low, low)
    assert histogram.amax == np.abs(values).max()
    assert histogram.total == values.size
    assert histogram.zeros == np.count_nonzero(np.abs(values) < 2.0**-126)
    lower, width, counts = histogram.filled()
    assert counts.sum() == histogram.total - histogram.zeros
    normal = np.abs(values)[np.abs(values) >= 2.0**-126].astype(float)
    inside = (normal[:, None] >= lower) & (normal[:, None] < lower + width)
    np.testing.assert_array_equal(inside.sum(axis=0), counts)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), method=st.sampled_from(METHODS), data=st.data())
def test_ranges_are_the_same_for_every_order_cut_and_shard(
    seed: int, method: str, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(3000) * np.exp2(rng.integers(-40, 40, 3000) * rng.random())).astype("f4")
    whole = made(method)
    whole.collect({"x": values})
    parts = np.split(rng.permutation(values), sorted(data.draw(st.lists(st.integers(0, 3000), max_size=6))))
    shards = [made(method) for _ in range(3)]
    for place, part in enumerate(parts):
        shards[place % 3].collect({"x": part})
    for shard in shards[1:]:
        shards[0].merge(shard)
    assert shards[0].compute()["x"] == whole.compute()["x"]
    assert_same_state(shards[0].state(), whole.state())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [1, 5, 24])
def test_rising_amplitudes_give_the_same_range_for_every_batch_size(method: str, batch: int) -> None:
    samples = np.outer(np.arange(1, 25), np.random.default_rng(0).standard_normal(500)).astype(np.float32)
    flat, cut = made(method), made(method)
    flat.collect({"x": samples.ravel()})
    for start in range(0, 24, batch):
        cut.collect({"x": samples[start : start + batch]})
    assert dict(cut.compute()) == dict(flat.compute())


@pytest.mark.parametrize("method", METHODS)
def test_ragged_batches_equal_one_flat_pass(method: str) -> None:
    rng = np.random.default_rng(3)
    shapes = ((4, 5), (4, 9), (2, 3))
    parts = [10.0**i * rng.standard_normal(shape) for i, shape in enumerate(shapes)]
    ragged, flat = made(method), made(method)
    for part in parts:
        ragged.collect({"x": part})
    flat.collect({"x": np.concatenate([part.ravel() for part in parts])})
    assert_same_state(ragged.state(), flat.state())


def test_blocks_longer_than_one_are_counted_whole() -> None:
    values = np.random.default_rng(0).standard_normal((3, 70_001)).astype(np.float32)
    histogram = counted(values)
    lower, _, counts = histogram.filled()
    for low in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2):
        inside = np.count_nonzero((np.abs(values) >= low) & (np.abs(values) < 2 * low))
        assert counts[(lower >= low) & (lower < 2 * low)].sum() == inside


def test_memory_does_not_grow_with_the_data() -> None:
    histogram = counted(np.float32([1.0]))
    size = sum(array.nbytes for array in histogram.state().values())
    histogram.add(np.geomspace(1e-30, 1e30, 100_000, dtype=np.float32))
    assert sum(array.nbytes for array in histogram.state().values()) == size == 320 * 1024 + 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_float_types_and_strides_are_counted_as_float32(dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float16)
    given_array = np.repeat(values.astype(dtype), 2, axis=1)[:, ::2]
    assert_same_state(counted(given_array).state(), counted(values.astype(np.float32)).state())


def test_float64_is_rounded_to_float32_first() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    assert_same_state(counted(values).state(), counted(values.astype(np.float32)).state())


def test_a_rise_within_the_octave_moves_nothing() -> None:
    histogram = counted(np.float32([1.0, 2**-16]), np.float32([1.5]))
    assert histogram.amax == 1.5
    assert np.argwhere(histogram.fine).tolist() == [[15, 0], [15, 1024]]
    assert np.argwhere(histogram.low).tolist() == [[127 - 16, 0]]


@pytest.mark.parametrize("size", [1, 2, 10, 999])
def test_median_is_numpys_lower_median_of_what_is_not_zero(size: int) -> None:
    values = np.random.default_rng(size).lognormal(size=size).astype(np.float32)
    expected = np.percentile(values, 50, method="inverted_cdf")
    assert counted(values, np.zeros(5000)).median() == pytest.approx(expected, rel=2**-11)
    assert counted(np.zeros(9)).median() == 0.0


@pytest.mark.parametrize("masked", [0.001, 0.4, 0.85])
@pytest.mark.parametrize("constant", [-LARGEST, -1e9])
def test_mask_constants_dominate(masked: float, constant: float) -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(20_000).astype(np.float32)
    mask = np.where(rng.random(scores.size) < masked, np.float32(constant), 0)
    ratio = counted(scores + mask).dominated_by_outliers()
    assert ratio == pytest.approx(-constant / float(np.median(np.abs(scores[mask == 0]))), rel=2**-5)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).standard_normal(100_000),
        np.random.default_rng(0).standard_t(3, 100_000),
        np.maximum(np.random.default_rng(0).standard_normal(100_000), 0),
        np.append(np.random.default_rng(0).standard_normal(100_000), 5e5),  # 7.4e5 times the median
        np.where(np.arange(100) < 50, -LARGEST, 0),
        np.zeros(5),
        softmax(np.random.default_rng(0).standard_normal((50, 2000)) * 9, axis=1),
        np.random.default_rng(0).standard_normal((100, 2)) * [15.0, 1e-33],
    ],
    ids=[
        *("normal", "student", "relu", "outlier within a million", "mask alone", "zero"),
        *("probabilities", "a channel that died out"),
    ],
)
def test_common_spread_is_not_called_dominated(values: np.ndarray) -> None:
    assert counted(values).dominated_by_outliers() is None


def test_values_beyond_float32_are_refused_before_anything_is_counted() -> None:
    calibrator = MSECalibrator()
    with pytest.raises(NonFiniteError, match=r"Tensor 'y' .* beyond float32"):
        calibrator.collect({"x": np.ones(3), "y": np.array([1.0, 1e39])})
    assert not calibrator.statistics


NAMES = ("a", "/model.0/Conv:0", "ä b\n", "names", "amax/0", "0")


@pytest.mark.parametrize("method", METHODS)
def test_state_survives_a_file_without_pickle(method: str) -> None:
    calibrator, other = made(method), made(method)
    rng = np.random.default_rng(0)
    calibrator.collect({name: rng.standard_normal(500) * i for i, name in enumerate(NAMES)})
    state = saved_and_read(calibrator.state())
    other.collect({"forgotten": np.ones(3)})
    other.load_state(state)
    assert list(other.compute().items()) == list(calibrator.compute().items())
    more = {name: rng.standard_normal(500) * 100 for name in NAMES}
    calibrator.collect(more)
    other.collect(more)
    assert_same_state(calibrator.state(), other.state())
    other.load_state(saved_and_read(made(method).state()))
    assert not other.statistics


@pytest.mark.parametrize("method", METHODS)
def test_a_copy_sent_to_another_process_keeps_counting(method: str) -> None:
    calibrator = made(method)
    calibrator.collect({"x": np.ones(3)})
    copy = pickle.loads(pickle.dumps(calibrator))
    for each in (calibrator, copy):
        each.collect({"x": np.full(3, 5.0)})
    assert_same_state(calibrator.state(), copy.state())


@pytest.mark.parametrize("method", METHODS)
def test_merge_brings_names_and_leaves_the_other_alone(method: str) -> None:
    one, other = made(method), made(method)
    one.collect({"x": np.ones(3)})
    other.collect({"x": np.full(2, 4.0), "y": np.full(2, 7.0)})
    before = other.state()
    one.merge(other)
    one.collect({"y": np.full(9, 100.0)})
    assert {name: h.amax for name, h in one.statistics.items()} == {"x": 4.0, "y": 100.0}
    assert {name: h.total for name, h in one.statistics.items()} == {"x": 5, "y": 11}
    assert_same_state(other.state(), before)
    twice = made(method)
    twice.collect({"x": np.ones(3)})
    twice.merge(twice)
    assert twice.statistics["x"].total == 6


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (MSECalibrator(), PercentileCalibrator(), r"percentile 99\.99 into mse"),
        (PercentileCalibrator(99.9), PercentileCalibrator(), r"percentile 99\.99 into percentile 99\.9:"),
        (MSECalibrator(), MinMaxCalibrator(), "minmax into mse"),
    ],
)
def test_statistics_of_another_method_are_refused(
    one: MagnitudeCalibrator, other: Calibrator, message: str
) -> None:
    one.collect({"x": np.ones(3)})
    other.collect({"x": np.full(3, 9.0)})
    with pytest.raises(CalibrationError, match="Cannot merge " + message):
        one.merge(other)
    with pytest.raises(CalibrationError, match=f"not one of {one.label()}"):
        one.load_state(other.state())
    assert dict(one.compute()) == {"x": 1.0}


def _lose(key: str) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda state: state.pop(key)


def _put(key: str, value: object) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda state: state.__setitem__(key, np.asarray(value))


def _change(key: str, place: tuple[int, ...], value: int) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda state: state[key].__setitem__(place, value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_lose("fine/0"), r"damaged: 'fine' is not int64 of shape \(16, 2048\)"),
        (_put("low/0", np.zeros((256, 32))), "damaged: 'low' is not int64 of shape"),
        (_put("amax/0", np.float32(np.nan)), "damaged: amax is nan"),
        (_put("amax/0", np.float32(-1)), "damaged: amax is -1"),
        (_put("amax/0", np.float32(1.5)), "damaged: amax is not the largest value"),
        (_change("fine/0", (15, 9), 1), "damaged: amax is not the largest value"),
        (_change("fine/0", (3, 3), -1), "damaged: a count is negative"),
        (_change("low/0", (127, 3), 1), "damaged: values lie outside their bins"),
    ],
)
def test_damaged_state_is_refused_and_changes_nothing(
    damage: Callable[[dict[str, np.ndarray]], object], message: str
) -> None:
    calibrator = MSECalibrator()
    calibrator.collect({"x": np.ones(3)})
    state = calibrator.state()
    damage(state)
    with pytest.raises(CalibrationError, match=message):
        calibrator.load_state(state)
    assert dict(calibrator.compute()) == {"x": 1.0}


def test_options_go_to_the_method_that_has_them() -> None:
    calibrator = make_calibrator("percentile", percentile=99.9)
    assert isinstance(calibrator, PercentileCalibrator)
    assert calibrator.percentile == 99.9
    assert isinstance(make_calibrator("mse", percentile=None), MSECalibrator)
    with pytest.raises(UsageError, match="'percentile': it is for method percentile"):
        make_calibrator("entropy", percentile=99.9)
    with pytest.raises(UsageError, match="mse takes no option 'bins': no method does"):
        make_calibrator("mse", bins=128)
    with pytest.raises(UsageError, match=r"0\.999 looks like a fraction: give 99\.9"):
        make_calibrator("percentile", percentile=0.999)


@pytest.mark.parametrize("method", METHODS)
def test_the_cache_is_one_that_tensorrt_reads(method: str) -> None:
    kind = CALIBRATORS[method]
    assert (kind.method, kind.algorithm, kind.order_dependent) == (method, "EntropyCalibration2", False)
