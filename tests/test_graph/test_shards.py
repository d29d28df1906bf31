"""Shards, partial files and killed runs: always the bits of one undisturbed process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from goldens import NETS, digits
from networks import conv_relu_gemm, model, node, samples, save, weight

import calib
from calib.calibrators import CALIBRATORS
from calib.calibrators.partial import is_partial, merge_partials, read_partial
from calib.data import Dataset, Sample, from_arrays
from calib.errors import CacheError, CalibrationError, NonFiniteError, UsageError
from calib.graph import calibrate_shard, finish_partial, job
from calib.graph.collection import Collector


def rising(count: int = 24) -> Dataset:
    """Samples of rising amplitude, so that grids must grow, in shards too."""
    values = samples(count, 3, 8, 8) * np.linspace(0.1, 5, count, dtype=np.float32)[:, None, None, None]
    return from_arrays("rising", {"x": values})


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return save(conv_relu_gemm(), tmp_path / "m.onnx")


@pytest.mark.parametrize("shards", [2, 3])
@pytest.mark.parametrize("method", CALIBRATORS)
def test_shards_give_the_bits_of_one_process(method: str, shards: int, network: Path) -> None:
    whole = calib.calibrate(network, rising(), method=method, batch_size=4, threads=1)
    parts = calib.calibrate(network, rising(), method=method, batch_size=4, threads=1, shards=shards)
    assert parts.cache.to_text() == whole.cache.to_text()
    assert parts.batches_used == parts.batches_asked == 6


def test_more_shards_than_batches(network: Path) -> None:
    whole = calib.calibrate(network, rising(8), batch_size=4, threads=1)
    parts = calib.calibrate(network, rising(8), batch_size=4, threads=1, shards=7)
    assert parts.cache.to_text() == whole.cache.to_text()


def late(tmp_path: Path) -> tuple[Path, Dataset]:
    """A network with a tensor that is all zero in the first batches, and other maxima in each shard."""
    proto = model(
        [node("Sub", ["x", "one"], ["low"]), node("Relu", ["low"], ["y"])],
        {"x": ["n", 16]},
        {"y": ["n", 16]},
        {"one": np.float32(1)},
    )
    values = np.random.default_rng(0).uniform(0, 0.9, (24, 16)).astype(np.float32)
    values[9, 3] = 1.7
    values[13] += 1.1
    values[21] *= 6
    return save(proto, tmp_path / "late.onnx"), from_arrays("late", {"x": values})


def test_a_tensor_that_wakes_late_is_counted_on_the_grid_of_its_first_batch(tmp_path: Path) -> None:
    path, dataset = late(tmp_path)
    whole = calib.calibrate(path, dataset, batch_size=4, threads=1)
    for shards in (2, 3, 6):
        parts = calib.calibrate(path, dataset, batch_size=4, threads=1, shards=shards)
        assert parts.cache.to_text() == whole.cache.to_text(), shards


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_partial_files_merge_to_the_bits_of_one_process(method: str, network: Path, tmp_path: Path) -> None:
    whole = calib.calibrate(network, rising(), method=method, batch_size=4, threads=1)
    files = []
    for number in (3, 1, 2):
        out = tmp_path / f"part{number}.npz"
        calibrate_shard(network, rising(), f"{number}/3", out, method=method, batch_size=4, threads=1)
        assert is_partial(out)
        files.append(out)
    merged = merge_partials([(file.name, read_partial(file)) for file in files])
    result = finish_partial(merged, tmp_path / "m.cache")
    assert result.cache.to_text() == whole.cache.to_text()
    assert (tmp_path / "m.cache").read_text() == whole.cache.to_text()


def test_partials_that_do_not_belong_together_are_refused_with_both_named(
    network: Path, tmp_path: Path
) -> None:
    def part(name: str, shard: str, **changed: object) -> tuple[str, object]:
        options = {"method": "minmax", "batch_size": 4, "threads": 1} | changed
        calibrate_shard(network, rising(), shard, tmp_path / name, **options)  # type: ignore[arg-type]
        return name, read_partial(tmp_path / name)

    first = part("a", "1/2")
    for changed, message in (
        (
            {"method": "entropy"},
            r"a and b are parts of different calibrations: method \(minmax and entropy\)",
        ),
        ({"batch_size": 6}, r"batch size \(4 and 6\)"),
        ({"samples": 16}, r"calibration data, .*number of samples \(24 and 16\)"),
    ):
        with pytest.raises(CalibrationError, match=message):
            merge_partials([first, part("b", "2/2", **changed)])  # type: ignore[list-item]
    with pytest.raises(CalibrationError, match="Parts are missing: a ends at batch 3 of 6"):
        merge_partials([first])  # type: ignore[list-item]
    with pytest.raises(
        CalibrationError, match=r"Batches do not join: expected .* at batch 3 of 6, a begins at 0"
    ):
        merge_partials([first, first])  # type: ignore[list-item]


@pytest.mark.parametrize(("shard", "counted"), [("1/2", "0 to 3"), ("2/2", "3 to 6")])
def test_a_part_alone_makes_no_cache(shard: str, counted: str, network: Path, tmp_path: Path) -> None:
    """24 samples in batches of 4 are 6 batches; a cache of half of them would say that it was made of all."""
    calibrate_shard(network, rising(), shard, tmp_path / "p", batch_size=4, threads=1)
    with pytest.raises(CalibrationError, match=rf"Parts are missing: batches {counted} of 6 are counted"):
        finish_partial(read_partial(tmp_path / "p"), tmp_path / "m.cache")
    assert not (tmp_path / "m.cache").exists()
    with pytest.raises(UsageError, match="Merging needs at least one part"):
        merge_partials([])


def test_other_grids_are_refused_and_can_be_given(tmp_path: Path) -> None:
    path, dataset = late(tmp_path)
    options = {"batch_size": 4, "threads": 1}
    for number in (1, 2, 3):
        calibrate_shard(path, dataset, f"{number}/3", tmp_path / f"p{number}", **options)
    names = [f"p{number}" for number in (1, 2, 3)]
    parts = [(name, read_partial(tmp_path / name)) for name in names]
    with pytest.raises(CalibrationError, match=r"Cannot merge p3 .*grids differ.*--grids-of"):
        merge_partials(parts)
    calibrate_shard(path, dataset, "3/3", tmp_path / "p3", grids_of=tmp_path / "p2", **options)
    merged = merge_partials([(name, read_partial(tmp_path / name)) for name in names])
    whole = calib.calibrate(path, dataset, **options)
    assert finish_partial(merged).cache.to_text() == whole.cache.to_text()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 calib_partial garbage", b"text"])
def test_what_is_no_partial_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    path.write_bytes(content)
    with pytest.raises(CacheError, match="is no partial calibration, or is damaged"):
        read_partial(path)


def test_cut_partial_is_refused(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    calibrate_shard(network, rising(), "1/2", path, batch_size=4)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CacheError, match="is no partial calibration, or is damaged"):
        read_partial(path)


@pytest.mark.parametrize("text", ["2", "0/2", "3/2", "a/b", "1/0", "-1/2", "¹/²"])
def test_shard_that_cannot_be_meant(text: str, network: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--shard must read like 2/4"):
        calibrate_shard(network, rising(), text, tmp_path / "p")


class Killed(BaseException):
    """What no code catches."""


def dying(dataset: Dataset, at: int) -> Dataset:
    """The same samples; the process dies when one of them is read."""

    def load(index: int) -> Sample:
        if index == at:
            raise Killed
        return dataset.load(index)

    return Dataset(dataset.name, dataset.ids, load, content=dataset.content, description=dataset.description)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_killed_run_goes_on_with_the_same_bits(
    method: str, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SECONDS_BETWEEN_STATES", 0.0)
    out = tmp_path / "m.cache"
    options = {"method": method, "batch_size": 4, "threads": 1, "out": out}
    undisturbed = calib.calibrate(network, rising(), method=method, batch_size=4, threads=1)
    for at in (9, 18):
        with pytest.raises(Killed):
            calib.calibrate(network, dying(rising(), at), **options)
    assert read_partial(tmp_path / "m.cache.state").done == 4
    counted = []
    monkeypatch.setattr(Collector, "add", counting(Collector.add, counted))
    finished = calib.calibrate(network, rising(), **options)
    assert len(counted) == 2
    assert finished.cache.to_text() == undisturbed.cache.to_text() == out.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.cache", "m.cache.json", "m.onnx"]


def test_command_given_again_after_its_last_batch_has_nothing_left_to_count(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "part.npz"
    calibrate_shard(network, rising(), "1/2", out, batch_size=4, threads=1)
    before, added = read_partial(out), []
    monkeypatch.setattr(Collector, "add", counting(Collector.add, added))
    calibrate_shard(network, rising(), "1/2", out, batch_size=4, threads=1)
    # 24 samples are 6 batches of 4, 3 of them in the first half; counted again is but the first batch, for
    # the grids.
    assert (before.start, before.done, before.stop, len(added)) == (0, 3, 3, 1)
    assert read_partial(out).to_bytes() == before.to_bytes()


def test_killed_assessment_goes_on_after_its_whole_blocks(network: Path, tmp_path: Path) -> None:
    options = {"batch_size": 4, "threads": 1, "assess": True}
    undisturbed = calib.calibrate(network, rising(), **options)
    with pytest.raises(Killed):
        calib.calibrate(network, dying(rising(), 13), out=tmp_path / "m.cache", **options)
    assert list(tmp_path.glob("m.cache.state.*"))
    finished = calib.calibrate(network, rising(), out=tmp_path / "m.cache", **options)
    assert finished.cache.to_text() == undisturbed.cache.to_text()
    assert finished.adequacy == undisturbed.adequacy
    assert not list(tmp_path.glob("m.cache.state*"))


def test_cache_that_could_not_be_written_is_written_by_the_same_command(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SECONDS_BETWEEN_STATES", 0.0)
    options = {"batch_size": 4, "threads": 1, "out": tmp_path / "m.cache"}
    with monkeypatch.context() as full:
        full.setattr("calib.graph.calibration.finish_partial", killed)
        with pytest.raises(Killed):
            calib.calibrate(network, rising(), **options)
    assert read_partial(tmp_path / "m.cache.state").done == 6
    undisturbed = calib.calibrate(network, rising(), batch_size=4, threads=1)
    assert calib.calibrate(network, rising(), **options).cache.to_text() == undisturbed.cache.to_text()


def killed(*_: object) -> None:
    raise Killed


def counting(method, counted: list):  # type: ignore[no-untyped-def,type-arg]
    def add(self, batch):  # type: ignore[no-untyped-def]
        counted.append(batch)
        method(self, batch)

    return add


def test_state_of_another_calibration_is_not_taken_up(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SECONDS_BETWEEN_STATES", 0.0)
    out = tmp_path / "m.cache"
    with pytest.raises(Killed):
        calib.calibrate(network, dying(rising(), 18), batch_size=4, out=out)
    proto = conv_relu_gemm()
    proto.graph.initializer[0].CopyFrom(calib_tensor(weight(4, 3, 3, 3, seed=8)))
    save(proto, network)
    other = calib.calibrate(network, rising(), batch_size=4, threads=1)
    assert (
        calib.calibrate(network, rising(), batch_size=4, threads=1, out=out).cache.to_text()
        == other.cache.to_text()
    )


def calib_tensor(values: np.ndarray):  # type: ignore[no-untyped-def]
    from onnx import numpy_helper

    return numpy_helper.from_array(values, "w1")


def test_process_killed_by_the_system_goes_on(tmp_path: Path) -> None:
    """The real thing: SIGKILL while it calibrates, then the same command."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, time, numpy as np, calib\n"
        "from calib.data import Dataset, Sample\n"
        "from calib.graph import job\n"
        "job.SECONDS_BETWEEN_STATES = 0.0\n"
        f"images = np.load({str(tmp_path / 'images.npy')!r})\n"
        "def load(i):\n    time.sleep(0.01)\n    return Sample(f's#{i}', {'input': images[i]})\n"
        "data = Dataset('s', tuple(f's#{i}' for i in range(len(images))), load)\n"
        f"calib.calibrate({str(NETS / 'plain.onnx')!r}, data, batch_size=8, threads=1, out=sys.argv[1])\n"
    )
    np.save(tmp_path / "images.npy", digits()["xtr"][:160])
    whole, killed = tmp_path / "whole.cache", tmp_path / "killed.cache"
    subprocess.run([sys.executable, script, whole], check=True, capture_output=True)
    process = subprocess.Popen([sys.executable, script, killed], stderr=subprocess.DEVNULL)
    state = tmp_path / "killed.cache.state"
    deadline = time.monotonic() + 60
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert state.exists()
    assert not killed.exists()
    subprocess.run([sys.executable, script, killed], check=True, capture_output=True)
    assert killed.read_bytes() == whole.read_bytes()
    assert not state.exists()


def test_batches_cut_for_the_memory_give_the_same_bits(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = calib.calibrate(network, rising(), batch_size=8, threads=1)
    monkeypatch.setattr("calib.graph.collection._PART_BYTES", 20_000)
    cut = calib.calibrate(network, rising(), batch_size=8, threads=1)
    # A matrix product of other height may round its last bit differently; nothing before it does.
    for name in ("x", "c1", "r1", "p1", "c2", "r2"):
        assert cut.cache.bits(name) == whole.cache.bits(name), name
    assert dict(cut.ranges) == pytest.approx(dict(whole.ranges), rel=1e-6)


def test_failure_in_a_shard_names_tensor_and_sample(tmp_path: Path) -> None:
    path = save(model([node("Log", ["x"], ["y"])], {"x": ["n", 2]}, {"y": ["n", 2]}), tmp_path / "m.onnx")
    values = np.ones((12, 2), np.float32)
    values[10, 1] = -1
    with pytest.raises(NonFiniteError, match=r"Tensor 'y' .*first at sample .*'set#10'"):
        calib.calibrate(path, from_arrays("set", {"x": values}), batch_size=2, shards=2)


def test_dask_takes_the_shards_over(network: Path) -> None:
    import distributed
    from joblib import parallel_config

    whole = calib.calibrate(network, rising(), batch_size=4, threads=1)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        parallel_config(backend="dask"),
    ):
        parts = calib.calibrate(network, rising(), batch_size=4, threads=1, shards=2)
    assert parts.cache.to_text() == whole.cache.to_text()
