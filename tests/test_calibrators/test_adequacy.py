from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np
import pytest

from calib.calibrators import (
    CALIBRATORS,
    Adequacy,
    Calibrator,
    EntropyCalibrator,
    MinMaxCalibrator,
    TensorAdequacy,
    assess,
    make_calibrator,
    scale_of,
)
from calib.calibrators.adequacy import expected_half_difference
from calib.errors import CalibrationError, UsageError

METHODS = tuple(CALIBRATORS)
AVERAGING = ("percentile", "mse")
BLOCKS = 8

Batch = Mapping[str, np.ndarray]
Values = Callable[[np.random.Generator, int], Any]


def calibrated(method: str, batches: Sequence[Batch], grids: Mapping[str, float]) -> Calibrator[Any]:
    """A calibrator that was fed directly, on given grids."""
    calibrator = make_calibrator(method)
    for name, amax in grids.items():
        calibrator.open(name, amax)
    for batch in batches:
        calibrator.collect(batch)
    return calibrator


def grids_of(method: str, batches: Sequence[Batch]) -> dict[str, float]:
    """The largest |x| of each tensor's first batch with any value other than zero."""
    found: dict[str, float] = {}
    for batch in batches if method == "entropy" else []:
        for name, array in batch.items():
            if array.any():
                found.setdefault(name, float(np.abs(array).max()))
    return found


def made(values: Mapping[str, Values], blocks: int = BLOCKS, batches: int = 2) -> list[list[Batch]]:
    """Batches of every block; what makes a tensor's values is told the block's number."""
    random = np.random.default_rng(7)
    return [
        [{name: np.float32(make(random, k)) for name, make in values.items()} for _ in range(batches)]
        for k in range(blocks)
    ]


def assessed(method: str, data: Sequence[Sequence[Batch]], **options: Any) -> Adequacy:
    grids = grids_of(method, list(chain(*data)))
    blocks = [calibrated(method, batches, grids) for batches in data]
    return assess(blocks, lambda: make_calibrator(method), **options)


def only(result: Adequacy) -> TensorAdequacy:
    (row,) = result.tensors
    return row


def normal(size: int) -> Values:
    return lambda random, _: random.normal(size=size)


def saturating(size: int) -> Values:
    """As of a ReLU6: many values at the limit, in every batch."""
    return lambda random, _: np.clip(random.normal(2, 4, size), 0, 6)


def last_block(size: int) -> Values:
    return lambda random, k: random.uniform(-1, 1, size) * (20 if k == BLOCKS - 1 else 1)


@pytest.mark.parametrize("method", METHODS)
def test_limited_values_settle(method: str) -> None:
    result = assessed(method, made({"x": saturating(2000)}), samples=512)
    row = only(result)
    assert row.settled
    assert row.scale == pytest.approx(6 / 127, rel=0.01)
    assert result.enough
    assert result.factor == 1.0
    assert result.settled_share == 1.0
    assert result.note.startswith("1 of 1 scales are settled within 5%. Enough: half of the samples gives")


@pytest.mark.parametrize("method", AVERAGING)
def test_many_normal_values_settle_and_few_do_not(method: str) -> None:
    many = only(assessed(method, made({"x": normal(100_000)})))
    few = only(assessed(method, made({"x": normal(200)})))
    assert many.state == "settled"
    assert few.state in ("spread", "growing", "order")
    assert few.difference > 2 * many.difference


@pytest.mark.parametrize("method", ["entropy", "minmax"])
def test_few_normal_values_still_move(method: str) -> None:
    assert not only(assessed(method, made({"x": normal(200)}))).settled


def test_percentile_s_standard_error_is_that_of_theory() -> None:
    # The sample quantile has the standard deviation √(p(1−p)/N) / f(q). |x| of normal values, p = 0.95:
    # q = 1.95996, f = 2·φ(q) = 0.116891; N = 64 000 → 0.2179449/252.982/0.116891 = 0.0073701, /q = 0.00376.
    blocks = made({f"x{i}": normal(4000) for i in range(40)})
    calibrators = [calibrated_at(95.0, batches) for batches in blocks]
    result = assess(calibrators, lambda: make_calibrator("percentile", percentile=95.0), resamples=40)
    errors = np.array([row.standard_error for row in result.tensors], float)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(0.00376, rel=0.1)
    # Of two halves: 2 · 0.00376 · √(2/π) = 0.0060.
    assert np.mean([row.expected or 0 for row in result.tensors]) == pytest.approx(0.0060, rel=0.1)
    # A percentile within the data neither grows nor shrinks with the samples.
    assert abs(np.mean([row.doubling or 0 for row in result.tensors])) < 0.0003
    # Averages over twice the data differ by 1/√2.
    ratios = [row.quarters / row.halves for row in result.tensors if row.quarters and row.halves]
    assert np.median(ratios) == pytest.approx(math.sqrt(2), rel=0.1)


def calibrated_at(percentile: float, batches: Sequence[Batch]) -> Calibrator[Any]:
    calibrator = make_calibrator("percentile", percentile=percentile)
    for batch in batches:
        calibrator.collect(batch)
    return calibrator


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_does_not_differ_at_all(method: str) -> None:
    row = only(assessed(method, made({"x": lambda *_: np.full(100, 2.5)})))
    assert row.settled
    measured = (row.even_odd, row.first_second, row.expected, row.spread, row.standard_error, row.doubling)
    assert measured == (0.0,) * 6
    assert row.first_quarter == row.first_half == row.scale


@pytest.mark.parametrize("method", METHODS)
def test_large_values_in_the_last_block_are_flagged(method: str) -> None:
    data = made({"even": saturating(500), "late": last_block(500)})
    result = assessed(method, data)
    late, even = result.tensors
    assert (late.tensor, late.state) == ("late", "growing")
    assert (even.tensor, even.state) == ("even", "settled")
    assert result.moving == (late,)
    assert result.settled_share == 0.5
    # 20 against 1 in the last block alone, which lies in the odd and in the second half.
    assert late.even_odd == pytest.approx(math.log(20), rel=0.1)
    assert late.first_second == pytest.approx(math.log(20), rel=0.1)
    assert late.first_half / late.scale == pytest.approx(1 / 20, rel=0.1)
    assert "×" in result.text()


def test_min_max_of_known_maxima() -> None:
    # Maxima of eight blocks; log₂ of the halves' ratios can be read off.
    blocks = [[{"x": np.float32([amax])}] for amax in (1, 2, 1, 1, 1, 1, 8, 1)]
    row = only(assessed("minmax", blocks))
    assert row.even_odd == pytest.approx(math.log(8 / 2), rel=1e-6)
    assert row.first_second == pytest.approx(math.log(8 / 2), rel=1e-6)
    assert (row.first_quarter, row.first_half, row.scale) == (scale_of(2.0), scale_of(2.0), scale_of(8.0))
    # Interleaved quarters have 1, 2, 8, 1: pairs differ by 1, 3, 0, 2, 1, 3 octaves; halves by 2, 3 and 2,
    # as those with the third quarter have 8 and the others 2, 2 and 1, and equal the whole.
    octave = math.log(2)
    assert row.quarters == pytest.approx(octave * math.sqrt((1 + 9 + 0 + 4 + 1 + 9) / 6), rel=1e-6)
    assert row.halves == pytest.approx(octave * math.sqrt((4 + 4 + 9) / 3), rel=1e-6)
    assert row.doubling == pytest.approx(octave * (2 + 2 + 3) / 6, rel=1e-6)
    assert row.state == "growing"


def test_resamples_of_known_maxima() -> None:
    # One block of eight has 2, all others 1: a resample has ln 2 unless it misses that block.
    blocks = [[{"x": np.float32([amax])}] for amax in (1, 1, 1, 2, 1, 1, 1, 1)]
    result = assessed("minmax", blocks, resamples=4000)
    missed = (7 / 8) ** 8
    deviation = math.log(2) * math.sqrt(missed * (1 - missed)) * math.sqrt(8 / 7)
    assert only(result).standard_error == pytest.approx(deviation, rel=0.02)
    assert only(result).spread == pytest.approx(math.log(2), rel=1e-6)
    # Resamples are drawn in order: multisets of 8 out of 8 number C(15, 8) = 6435.
    assert 1500 < result.distinct_resamples < 3500


def test_equal_resamples_are_computed_once() -> None:
    merged = 0

    class Counting(MinMaxCalibrator):
        def compute(self) -> Any:
            nonlocal merged
            merged += 1
            return super().compute()

    blocks = []
    for amax in (1, 2, 3, 4):
        block = Counting()
        block.collect({"x": np.float32([amax])})
        blocks.append(block)
    result = assess(blocks, Counting, resamples=4000)
    # Multisets of 4 out of 4: C(7, 4) = 35, among them the whole; quarters, six halves (two of them first
    # and second) remain: 35 + 4 + 6.
    assert result.distinct_resamples == 35
    assert merged == 45


@pytest.mark.parametrize("method", METHODS)
def test_parts_have_the_bits_of_calibrators_fed_directly(method: str) -> None:
    data = made({"x": normal(300), "y": last_block(300)}, batches=3)
    grids = grids_of(method, list(chain(*data)))

    def direct(*chosen: int) -> dict[str, float]:
        return calibrated(method, list(chain(*(data[k] for k in chosen))), grids).compute().scales

    for row in assessed(method, data).tensors:
        name = row.tensor
        assert row.scale == direct(*range(8))[name]
        assert row.first_half == direct(0, 1, 2, 3)[name]
        assert row.first_quarter == direct(0, 1)[name]
        even, odd = direct(0, 2, 4, 6)[name], direct(1, 3, 5, 7)[name]
        assert row.even_odd == abs(np.log(even) - np.log(odd))
        assert row.first_second == abs(np.log(row.first_half) - np.log(direct(4, 5, 6, 7)[name]))


@pytest.mark.parametrize("method", METHODS)
def test_blocks_are_not_changed_and_the_result_is_the_same_again(method: str) -> None:
    data = made({"x": normal(300), "y": saturating(300)})
    grids = grids_of(method, list(chain(*data)))
    blocks = [calibrated(method, batches, grids) for batches in data]
    before = [block.state() for block in blocks]
    first, again = (assess(blocks, lambda: make_calibrator(method), seed=3) for _ in range(2))
    assert first == again
    for block, kept in zip(blocks, before, strict=True):
        for key, array in block.state().items():
            np.testing.assert_array_equal(array, kept[key])
    other = assess(blocks, lambda: make_calibrator(method), seed=4)
    spread = {row.tensor: row.spread for row in other.tensors}
    assert any(row.spread != spread[row.tensor] for row in first.tensors)


@pytest.mark.parametrize("method", METHODS)
def test_zero_in_one_half_is_moving(method: str) -> None:
    data = made({"x": lambda random, k: random.uniform(-1, 1, 100) * (k % 2)})
    result = assessed(method, data)
    row = only(result)
    assert (row.state, row.blocks_zero, row.blocks_absent) == ("zero", 4, 0)
    assert row.even_odd is None
    assert row.expected is None
    assert row.difference == math.inf
    assert result.factor is None
    assert result.suggestion == (
        "1 tensor is zero or without values in a part of the samples: choose samples that reach them."
    )


@pytest.mark.parametrize("method", METHODS)
def test_zero_in_single_blocks_need_not_be(method: str) -> None:
    data = made({"x": lambda random, k: np.clip(random.normal(0, 4, 500), -1, 1) * (k != 5)})
    row = only(assessed(method, data))
    assert (row.state, row.blocks_zero) == ("settled", 1)


@pytest.mark.parametrize("method", METHODS)
def test_zero_throughout_is_settled(method: str) -> None:
    result = assessed(method, made({"x": lambda *_: np.zeros(10)}))
    row = only(result)
    assert (row.state, row.scale, row.even_odd, row.blocks_zero) == ("settled", 0.0, 0.0, 8)
    assert result.text().endswith("settled, zero throughout")


ABSENT: Mapping[str, Values] = {
    "x": lambda random, k: random.uniform(-1, 1, 100 if k > 3 else 0),
    "y": saturating(200),
}


def assert_absent(result: Adequacy) -> None:
    row, other = result.tensors
    assert (row.tensor, row.state, row.blocks_absent, row.blocks_zero) == ("x", "absent", 4, 0)
    assert (row.first_half, row.first_second) == (0.0, None)
    assert "no values in a part of the samples" in result.text()
    assert other.settled


@pytest.mark.parametrize("method", METHODS)
def test_values_absent_from_one_half_are_moving(method: str) -> None:
    assert_absent(assessed(method, made(ABSENT)))


def test_values_absent_where_no_grid_was_opened_either() -> None:
    data = made(ABSENT)
    grids = grids_of("entropy", list(chain(*data)))
    opened = [grids if k > 3 else {"y": grids["y"]} for k in range(BLOCKS)]
    blocks = [calibrated("entropy", batches, own) for batches, own in zip(data, opened, strict=True)]
    assert_absent(assess(blocks, EntropyCalibrator))


def test_an_order_is_told_from_chance() -> None:
    # Every other block has the same maximum, the two halves have not.
    amax = (1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 0.9, 0.9)
    result = assessed("minmax", [[{"x": np.float32([value])}] for value in amax])
    row = only(result)
    assert row.state == "order"
    assert row.even_odd == 0.0
    assert row.first_second == pytest.approx(math.log(1 / 0.9), rel=1e-6)
    assert "shuffle" in result.suggestion


def test_halves_that_differ_a_little_more_in_order_show_none() -> None:
    # ln(1 / 0.961) = 0.040 for every other block, ln(1 / 0.942) = 0.060 for the halves in order.
    amax = (1.0, 0.961, 0.9, 0.9, 0.942, 0.9, 0.9, 0.9)
    row = only(assessed("minmax", [[{"x": np.float32([value])}] for value in amax]))
    assert row.even_odd == pytest.approx(0.040, abs=0.001)
    assert row.first_second == pytest.approx(0.060, abs=0.001)
    assert row.state == "spread"


def test_samples_are_extrapolated() -> None:
    # Half the difference needs four times the samples: 4 · 512 = 2048, rounded up to two digits.
    data = made({"x": normal(5000)})
    row = only(assessed("percentile", data))
    assert row.expected is not None
    tolerance = row.expected / 2
    result = assessed("percentile", data, tolerance=tolerance, samples=512)
    assert result.factor == pytest.approx(4.0)
    assert "About 2100 samples would settle all (roughly, by 1/√n)." in result.suggestion
    assert "About 4.0 times" in assessed("percentile", data, tolerance=tolerance).suggestion


def test_nothing_is_extrapolated_far() -> None:
    result = assessed("percentile", made({"x": last_block(200)}), samples=512)
    assert result.factor == 16.0
    assert "More than 8192 samples would settle all" in result.suggestion


def test_most_tensors_are_told_from_all() -> None:
    wide = {f"x{i}": normal(5000) for i in range(39)}
    data = made(wide | {"late": last_block(5000)})
    result = assessed("percentile", data, tolerance=0.02, samples=100)
    assert result.suggestion.count("samples") == 2
    assert "would settle 95% of the tensors" in result.suggestion
    assert "More than 1600 samples would settle all" in result.suggestion


def test_entropy_that_follows_the_maximum_is_not_extrapolated() -> None:
    data = made({f"x{i}": normal(20_000) for i in range(4)}, batches=1)
    result = assessed("entropy", data)
    assert result.moving
    assert result.factor is None
    assert result.suggestion.startswith("More samples may not help: quarters of them differ by")


@pytest.mark.parametrize(
    ("heaviest", "advice"), [(8.0, "try percentile"), (1.06, "Twice as many samples may do")]
)
def test_min_max_is_not_extrapolated(heaviest: float, advice: str) -> None:
    blocks = [[{"x": np.float32([amax])}] for amax in (1, 1, 1, heaviest, 1, 1, 1, 1)]
    result = assessed("minmax", blocks)
    assert result.factor is None
    assert "Min-max grows with every sample" in result.suggestion
    assert advice in result.suggestion


@pytest.mark.parametrize("method", METHODS)
def test_it_goes_through_json(method: str) -> None:
    data = made(
        {"x": normal(100), "y": last_block(100), "z": lambda random, k: random.normal(size=9) * (k % 2)}
    )
    result = assessed(method, data, samples=64)
    read = json.loads(json.dumps(asdict(result), allow_nan=False))
    rows = tuple(TensorAdequacy(**row) for row in read.pop("tensors"))
    assert Adequacy(**read, tensors=rows) == result


def test_text_is_a_table_of_the_worst() -> None:
    names = {f"module/{'very/' * 20}{i}": normal(100) for i in range(12)}
    result = assessed("minmax", made(names | {"still": lambda *_: np.ones(3)}), samples=64)
    lines = result.text(limit=3).splitlines()
    assert lines[0] == "Calibration set: minmax, 64 samples in 8 blocks, 20 resamples (20 distinct)"
    assert lines[1] == result.note
    assert lines[3].split()[:2] == ["tensor", "scale"]
    assert [line[:7] for line in lines[4:7]] == ["module/"] * 3
    assert {line.index("…") for line in lines[4:7]} == {19}
    assert lines[7:] == [f"and {len(result.moving) - 3} more that still move"]
    assert "\n" not in result.note
    assert len(result.worst) == 10
    assert len(result.text(limit=0).splitlines()) == 2
    assert result.tensors[-1].tensor == "still"


@pytest.mark.parametrize("count", [4, 5, 7, 16])
def test_any_number_of_blocks(count: int) -> None:
    result = assessed("entropy", made({"x": saturating(500)}, blocks=count))
    assert result.blocks == count
    assert only(result).settled


def test_expected_half_difference_is_that_of_normal_scales() -> None:
    # ln(scale) of n samples N(0, σ²) with σ = 0.01; of each half N(0, 2σ²).
    halves = np.random.default_rng(0).normal(0, 0.01 * math.sqrt(2), (2, 400_000))
    observed = np.abs(halves[0] - halves[1])
    assert expected_half_difference([0.0], 0.01) * 2 == pytest.approx(observed.mean(), rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resamples": 5}, "resamples must be at least 10, got 5"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"tolerance": 0.0}, "tolerance must be a share above 0 and below 1, such as 0.05 for 5%, got 0"),
        ({"tolerance": 5}, "got 5"),
        ({"tolerance": float("nan")}, "got nan"),
    ],
)
def test_arguments_out_of_bounds_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        assessed("minmax", made({"x": normal(10)}), **options)


def test_too_few_blocks_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 4 blocks of batches, got 3"):
        assessed("minmax", made({"x": normal(10)}, blocks=3))


def test_blocks_without_tensors_are_refused() -> None:
    with pytest.raises(CalibrationError, match="nothing to assess"):
        assess([EntropyCalibrator()] * 4, EntropyCalibrator)


def test_blocks_of_other_methods_and_grids_are_refused() -> None:
    blocks = [make_calibrator("minmax") for _ in range(4)]
    blocks[0].collect({"x": np.float32([1])})
    with pytest.raises(CalibrationError, match="Cannot merge minmax into entropy"):
        assess(blocks, EntropyCalibrator)
    grids = [calibrated("entropy", [{"x": np.float32([amax])}], {}) for amax in (1, 2, 3, 4)]
    with pytest.raises(CalibrationError, match="grids differ"):
        assess(grids, EntropyCalibrator)


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    data = made({"x": normal(10)})
    assessed("minmax", data)
    assert capsys.readouterr().err == ""
    assessed("minmax", data, show=True)
    assert "Assessing: " in capsys.readouterr().err
