"""Our ranges against the caches that TensorRT 8.6.0 wrote for the same data."""

import pytest
from goldens import hex_of, probe, probe_batches

from calib.calibrators import EntropyCalibrator, MinMaxCalibrator, scale_of

KEYS = [key for key in probe() if key.split("/")[1] in ("entropy2", "entropy1", "minmax")]
CLASSES = {"entropy2": EntropyCalibrator, "entropy1": EntropyCalibrator, "minmax": MinMaxCalibrator}


@pytest.mark.parametrize("key", KEYS)
def test_every_row_has_tensorrts_bits(key: str) -> None:
    name, algorithm = key.split("/")
    calibrator = CLASSES[algorithm]()
    for batch in probe_batches(name):
        calibrator.collect(batch)
    ranges = calibrator.compute()
    golden = probe()[key]
    ours = {row: hex_of(scale_of(ranges[row])) for row in golden}
    assert ours == golden


def test_probe_is_as_large_as_it_was() -> None:
    rows = sum(len(probe()[key]) for key in KEYS)
    assert len(KEYS) == 15
    assert rows == 12 * 98 + 3 * 34


def test_entropy_depends_on_the_cut_of_the_batches_as_in_tensorrt() -> None:
    first, second = probe_batches("grow2")[:2]
    forward, backward = EntropyCalibrator(), EntropyCalibrator()
    for batches, calibrator in (((first, second), forward), ((second, first), backward)):
        for batch in batches:
            calibrator.collect(batch)
    a, b = forward.compute(), backward.compute()
    assert any(a[name] != b[name] for name in a)
