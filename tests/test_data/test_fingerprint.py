"""What changes a fingerprint, and what does not."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from calib.data import fingerprint, from_arrays, load_recipe, open_calibration
from calib.data.fingerprint import file_identity
from calib.errors import DatasetError

X = np.arange(12.0, dtype=np.float32).reshape(6, 2)
BASE = from_arrays("d", {"x": X}, labels=[0, 1, 2, 0, 1, 2])
TEXT = """schema: 1
name: n
source: {kind: arrays, path: x.npz}
calibration: {samples: 4}
"""


def test_is_64_hex_digits_and_repeats():
    assert len(fingerprint(BASE)) == 64
    assert int(fingerprint(BASE), 16) > 0
    again = from_arrays("d", {"x": X.copy()}, labels=np.array([0, 1, 2, 0, 1, 2]))
    assert fingerprint(again) == fingerprint(BASE)


@pytest.mark.parametrize(
    "other",
    [
        from_arrays("d", {"x": X + 1e-6}, labels=BASE.labels),
        from_arrays("d", {"y": X}, labels=BASE.labels),
        from_arrays("d", {"x": X.astype("f8")}, labels=BASE.labels),
        from_arrays("d", {"x": X}),
        from_arrays("d", {"x": X}, labels=[0, 1, 2, 0, 1, 1]),
        BASE.subset(range(5)),
        BASE.subset([1, 0, 2, 3, 4, 5]),
        replace(BASE, description={"preprocess": {"scale": 2}}),
    ],
)
def test_any_change_shows(other):
    assert fingerprint(other) != fingerprint(BASE)


def test_name_and_notes_do_not_matter():
    assert fingerprint(replace(BASE, name="e").with_notes("n")) == fingerprint(BASE)


def test_labels_may_be_arrays_but_not_anything():
    one = from_arrays("d", {"x": X}, labels=np.zeros((6, 3)))
    two = from_arrays("d", {"x": X}, labels=np.ones((6, 3)))
    assert fingerprint(one) != fingerprint(two)
    with pytest.raises(DatasetError, match="Cannot fingerprint <object"):
        fingerprint(from_arrays("d", {"x": X}, labels=[object()] * 6))


def test_same_on_every_machine(tmp_path):
    """Neither the folder nor time stamps count; the file's content does."""
    first, second = tmp_path / "first", tmp_path / "elsewhere/second"
    first.mkdir()
    np.savez(first / "x.npz", x=X)
    (first / "r.yaml").write_text(TEXT)
    shutil.copytree(first, second)
    os.utime(second / "x.npz", (1, 1))
    prints = [fingerprint(open_calibration(load_recipe(d / "r.yaml"))) for d in (first, second)]
    assert prints[0] == prints[1]
    changed = X.copy()
    changed[3, 1] += 1
    np.savez(second / "x.npz", x=changed)
    assert fingerprint(open_calibration(load_recipe(second / "r.yaml"))) != prints[0]


def test_preprocessing_counts(tmp_path):
    np.savez(tmp_path / "x.npz", x=X)
    (tmp_path / "a.yaml").write_text(TEXT)
    (tmp_path / "b.yaml").write_text(TEXT + "preprocess: {scale: 2}\n")
    a, b = (fingerprint(open_calibration(load_recipe(tmp_path / f))) for f in ("a.yaml", "b.yaml"))
    assert a != b


def test_any_array_of_a_large_npz_shows(tmp_path):
    """A change in the middle of 3 MB shows by the checksum at the file's end."""
    values = np.zeros((3, 1 << 18), np.float32)
    np.savez(tmp_path / "a.npz", x=values)
    values[1, 1000] = 1
    np.savez(tmp_path / "b.npz", x=values)
    assert (tmp_path / "a.npz").stat().st_size == (tmp_path / "b.npz").stat().st_size > 1 << 20
    assert file_identity(tmp_path / "a.npz") != file_identity(tmp_path / "b.npz")


def test_missing_file(tmp_path):
    with pytest.raises(DatasetError, match=r"Cannot read .*gone: No such file"):
        file_identity(tmp_path / "gone")
