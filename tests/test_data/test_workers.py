"""Samples read in worker processes: the same bytes, in order, bounded, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calib.data import Dataset, Sample, open_calibration
from calib.data.loading import _START
from calib.errors import DatasetError

SCRIPT = """
import os, signal, sys, time
import numpy as np
from calib.data import Dataset, Sample

# What a shell started in the background ignores it, and so do the processes of that.
signal.signal(signal.SIGINT, signal.default_int_handler)

def load(index):
    time.sleep(0.02)
    return Sample(f"s{index}", {"x": np.array([float(os.getpid())])})

data = Dataset("d", tuple(f"s{i}" for i in range(4000)), load, workers=2)
for number, batch in enumerate(data.batches(8)):
    if number == 1:
        print(*sorted({int(pid) for pid in batch.inputs["x"].ravel()}), flush=True)
"""


def made(count=40, fault=None, workers=2):
    """Samples that say which process read them."""

    def load(index):
        if index == fault:
            raise KeyError("of a decoder")
        values = np.random.default_rng(index).normal(size=(3, 8))
        return Sample(f"s{index}", {"x": values, "pid": np.array(os.getpid())}, index)

    return Dataset("d", tuple(f"s{i}" for i in range(count)), load, workers=workers)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(alive, pids)):
        time.sleep(0.1)
    return [pid for pid in pids if alive(pid)]


def test_batches_are_those_of_one_process_in_order():
    dataset = made(41)
    pairs = list(zip(dataset.batches(8), replace(dataset, workers=0).batches(8), strict=True))
    readers: set[int] = set()
    for ours, theirs in pairs:
        assert ours.ids == theirs.ids
        assert ours.labels == theirs.labels
        assert ours.inputs["x"].tobytes() == theirs.inputs["x"].tobytes()
        readers |= set(ours.inputs["pid"].tolist())
    assert len(pairs) == 6
    assert os.getpid() not in readers
    assert wait_until_gone(readers) == []


def test_a_sample_that_fails_is_named():
    batches = made(fault=30).batches(8)
    pids = {pid for _ in range(3) for pid in next(batches).inputs["pid"].tolist()}
    with pytest.raises(DatasetError, match="Sample s30 cannot be read: KeyError: 'of a decoder'"):
        next(batches)
    assert len(pids) == 2
    assert wait_until_gone(pids) == []
    with pytest.raises(DatasetError, match="Sample s3 cannot be read: KeyError"):
        made(fault=3, workers=0)[3]


def test_a_process_that_dies_is_told():
    def load(index):
        if index == 12:
            os._exit(7)
        return Sample(f"s{index}", {"x": np.zeros(2)})

    dataset = Dataset("d", tuple(f"s{i}" for i in range(20)), load, workers=2)
    # s12 is asked for when s3 has come; what its process had read before and not sent yet dies with it.
    with pytest.raises(
        DatasetError,
        match=r"process that reads samples died \(exit status 7\), at sample s(4|6|8|10|12) or",
    ):
        list(dataset.batches(4))


def test_reading_ahead_is_bounded():
    def load(index):
        with Path(log).open("a") as stream:
            stream.write(f"{index}\n")
        return Sample(f"s{index}", {"x": np.zeros(2)})

    log = f"/tmp/calib-read-{os.getpid()}"
    dataset = Dataset("d", tuple(f"s{i}" for i in range(500)), load, workers=2)
    try:
        batches = dataset.batches(4)
        next(batches)
        time.sleep(2)
        read = len(Path(log).read_text().splitlines())
        batches.close()
    finally:
        Path(log).unlink(missing_ok=True)
    # The first batch, and what is read ahead of its last sample: a batch and two for each process.
    assert 4 <= read <= 4 + (4 + 2 * 2) + 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_behind(how):
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workers = [int(pid) for pid in child.stdout.readline().split()]
    assert len(workers) == 2
    assert all(map(alive, workers))
    # A terminal sends Ctrl-C to the whole group; the others reach the parent alone.
    os.killpg(child.pid, how) if how == signal.SIGINT else os.kill(child.pid, how)
    child.communicate(timeout=30)
    assert child.returncode != 0
    assert wait_until_gone(workers) == []


def test_ctrl_c_while_a_worker_reads_its_modules_is_the_parents_alone(tmp_path):
    package = tmp_path / "calib" / "data"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    # In place of calib's own modules: what becomes of the signal when the first of them is read.
    (package / "worker.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndef main(): print('went on')\n"
    )
    code = _START.format(path=[str(tmp_path), *(place for place in sys.path if place)])
    # What a shell started in the background ignores it already.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "went on\n", "")


def test_a_recipe_asks_for_workers(recipe, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(60.0, dtype=np.float32).reshape(20, 3))
    text = "source: {kind: arrays, path: a.npy}\ncalibration: {samples: 20}\n"
    plain, several = (open_calibration(recipe(text + more)) for more in ("", "workers: 2"))
    assert several.workers == 2
    for one, other in zip(plain.batches(6), several.batches(6), strict=True):
        assert one.inputs["input"].tobytes() == other.inputs["input"].tobytes()
    with pytest.raises(DatasetError, match="key workers"):
        recipe(text + "workers: -1")


def test_a_worker_keeps_freed_memory_unless_the_user_says_otherwise(monkeypatch):
    def load(index):
        names = ("OMP_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
        return Sample(f"s{index}", {name: np.array(int(os.environ[name])) for name in names})

    for name in ("OMP_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4096")
    (batch,) = Dataset("d", tuple(f"s{i}" for i in range(8)), load, workers=1).batches(8)
    assert {name: set(values.tolist()) for name, values in batch.inputs.items()} == {
        "OMP_NUM_THREADS": {1},
        "MALLOC_MMAP_THRESHOLD_": {32 << 20},
        "MALLOC_TRIM_THRESHOLD_": {4096},
    }
