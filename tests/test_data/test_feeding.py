"""Padding, constants and state in recipes; selection of groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.data import Carried, Padding, Sample, fingerprint, from_arrays, open_calibration, open_validation
from calib.data.selection import pick, without
from calib.data.stacking import stack
from calib.errors import DatasetError


def samples(*arrays, name="x"):
    return [Sample(f"s{i}", {name: np.asarray(array)}, origin=f"file{i}") for i, array in enumerate(arrays)]


class TestPadding:
    @given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4))
    def test_rows_are_filled_at_the_end_to_a_multiple(self, lengths, multiple):
        rows = [np.arange(length) + 1 for length in lengths]
        batch = stack(samples(*rows), {"x": Padding(value=-1, multiple=multiple, mask="m")})
        width = batch.inputs["x"].shape[1]
        assert width % multiple == 0
        assert 0 <= width - max(lengths) < multiple
        for row, mask, values in zip(batch.inputs["x"], batch.inputs["m"], rows, strict=True):
            assert row.tolist() == [*values.tolist(), *[-1] * (width - len(values))]
            assert mask.tolist() == [1] * len(values) + [0] * (width - len(values))

    def test_several_axes(self):
        batch = stack(
            samples(np.ones((3, 2, 5)), np.ones((3, 4, 1))), {"x": Padding((1, -1), 9.0, mask="mask")}
        )
        assert batch.inputs["x"].shape == (2, 3, 4, 5)
        assert batch.inputs["mask"].shape == (2, 4, 5)
        assert (batch.inputs["x"] == 9).sum() == 3 * (20 - 10) + 3 * (20 - 4)
        assert batch.inputs["mask"].sum() == 14

    def test_fractions_after_whole_numbers_stay_fractions(self):
        whole, half = np.array([1, 2]), np.array([0.5], np.float32)
        assert stack(samples(whole, half), {"x": Padding()}).inputs["x"].tolist() == [[1, 2], [0.5, 0]]

    def test_an_input_that_is_not_there(self):
        with pytest.raises(DatasetError, match=r"sample file0 has no input 'y'; it has 'x'\. Correct"):
            stack(samples([1, 2]), {"y": Padding()})

    def test_a_fixed_length(self):
        assert stack(samples([1, 2]), {"x": Padding(to=4)}).inputs["x"].tolist() == [[1, 2, 0, 0]]
        with pytest.raises(DatasetError, match=r"sample file0 has 5 values along axis 0, more than the 4"):
            stack(samples(range(5)), {"x": Padding(to=4)})

    @pytest.mark.parametrize(
        ("arrays", "padding", "message"),
        [
            (([1], [1, 2]), None, r"file1 has shape \(2,\), but file0 .* \(1,\).*declare padding"),
            (([[1, 2]], [[1, 2, 3]]), Padding(), r"differ in more than the padded axis 0"),
            (([1], [[1]]), Padding(), "differ in more than"),
            (([1], [2]), Padding((1,)), "has 1 axis, there is no axis 1"),
            (([1], [2]), Padding(value=0.5), r"the value 0\.5 of input 'x' does not fit its type int64"),
        ],
    )
    def test_faults(self, arrays, padding, message):
        with pytest.raises(DatasetError, match=message):
            stack(samples(*arrays), {} if padding is None else {"x": padding})


@pytest.fixture
def arrays(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(40.0, dtype=np.float32).reshape(20, 2))


SOURCE = "source: {kind: arrays, path: a.npz}\ncalibration: {samples: 5}\n"


class TestRecipes:
    def test_all_three(self, recipe, arrays):
        more = (
            "padding: {x: {axis: 0, to: 4, mask: m}}\nconstants: {sr: 16000, w: [[1.5, 2]]}\nstate: {h: hn}\n"
        )
        dataset = open_calibration(recipe(SOURCE + more))
        (batch, *_) = dataset.batches(1)
        assert batch.inputs["x"].shape == (1, 4)
        assert batch.inputs["m"].tolist() == [[1, 1, 0, 0]]
        assert batch.constants["sr"].dtype == np.int64
        assert batch.constants["sr"].shape == ()
        assert batch.constants["w"].dtype == np.float32
        assert batch.state == {"h": Carried("hn")}
        # Without sequences of its own, the source's order is one.
        assert dataset.ids == tuple(f"a.npz#{i}" for i in range(5))
        assert [b.begins for b in dataset.batches(1)] == [True] + [False] * 4

    def test_types_of_constants_and_shapes_of_state(self, recipe, arrays):
        more = "constants: {c: {value: [1, 2], dtype: int32}, b: true}\n"
        more += "state: {h: {output: hn, shape: [2, 1, 4]}}\n"
        dataset = open_calibration(recipe(SOURCE + more))
        assert dataset.constants["c"].dtype == np.int32
        assert dataset.constants["b"].dtype == np.bool_
        assert dataset.state["h"].shape == (2, 1, 4)

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ("constants: {c: text}", r"key constants\.c: expected a number or lists of numbers"),
            ("constants: {c: [[1], [1, 2]]}", r"key constants\.c: expected a number or lists"),
            ("constants: {c: {value: 300, dtype: uint8}}", r"key constants\.c: 300 does not fit uint8"),
            ("constants: {c: .nan}", r"key constants\.c: expected finite numbers"),
            ("constants: {c: 1}\nstate: {c: hn}", r"key constants\.c: input 'c' is in state too"),
            ("padding: {x: {axs: 1}}", r"key padding\.x\.axs: unknown key 'axs'\. Did you mean 'axis'"),
            ("padding: {x: {to: 0}}", r"key padding\.x\.to: "),
            ("state: {h: {shape: [1]}}", r"key state\.h: key 'output' is missing|key 'output' is missing"),
            ("pading: {x: {to: 1}}", r"unknown key 'pading'\. Did you mean 'padding'"),
        ],
    )
    def test_faults(self, recipe, arrays, more, message):
        with pytest.raises(DatasetError, match=message):
            recipe(SOURCE + more)

    def test_the_fingerprint_covers_them(self, recipe, arrays):
        lines = (
            "",
            "padding: {x: {to: 4}}",
            "padding: {x: {to: 5}}",
            "constants: {c: 1}",
            "constants: {c: 2}",
        )
        more = ("state: {h: hn}", "state: {h: other}")
        prints = {fingerprint(recipe(SOURCE + line).open("validation")) for line in (*lines, *more)}
        assert len(prints) == 7
        plain = fingerprint(recipe(SOURCE).open("validation"))
        assert fingerprint(recipe(SOURCE + "workers: 2").open("validation")) == plain


class TestGroups:
    """Six recordings of one to six windows, three of each class."""

    GROUPS = tuple(name for number, name in enumerate("abcdef", start=1) for _ in range(number))
    LABELS = tuple("abcdef".index(group) % 2 for group in GROUPS)

    @pytest.fixture
    def dataset(self):
        x = np.arange(len(self.GROUPS))
        return replace(
            from_arrays("d", {"x": x}, self.LABELS), groups=self.GROUPS, state={"h": Carried("hn")}
        )

    @pytest.mark.parametrize("samples", range(1, 22))
    def test_sequences_come_whole_and_in_order_but_for_the_last(self, dataset, samples):
        for seed in range(5):
            chosen = dataset.subset(pick(dataset, samples, seed, cover=True))
            assert len(chosen) == samples
            runs = [i for i in range(samples) if chosen.begins(i)]
            assert len(runs) == len(set(chosen.groups))
            for start, stop in zip(runs, [*runs[1:], samples], strict=True):
                whole = [
                    i
                    for i, group in zip(dataset.ids, self.GROUPS, strict=True)
                    if group == chosen.groups[start]
                ]
                assert list(chosen.ids[start:stop]) == whole[: stop - start]
                assert stop == samples or stop - start == len(whole)

    def test_classes_are_covered_first(self, dataset):
        for seed in range(20):
            chosen = dataset.subset(pick(dataset, 12, seed, cover=True))
            assert set(chosen.labels) == {0, 1}

    def test_the_same_seed_gives_the_same_choice(self, dataset):
        assert pick(dataset, 9, 4) == pick(dataset, 9, 4)
        assert len({tuple(pick(dataset, 9, seed)) for seed in range(9)}) > 3

    def test_a_group_that_was_calibrated_on_is_left_out_whole(self, dataset):
        rest = dataset.subset(without(dataset, {"d#2", "d#20"}))
        assert set(rest.groups) == {"a", "c", "d", "e"}

    def test_measured_values_are_no_classes(self):
        values = np.linspace(0, 1, 40)
        dataset = from_arrays("d", {"x": values}, values)
        plain = from_arrays("d", {"x": values})
        assert pick(dataset, 10, 3, cover=True) == pick(plain, 10, 3, cover=True)


def test_batches_of_few_samples(recipe, tmp_path):
    """Three samples and batches of eight: one partial batch, and a note that they are few."""
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2), np.float32))
    loaded = recipe("source: {kind: arrays, path: a.npz}\ncalibration: {samples: 3}")
    dataset = open_calibration(loaded)
    assert [len(batch) for batch in dataset.batches(8)] == [3]
    assert any(note.startswith("Only 3 calibration samples") for note in dataset.notes)
    with pytest.raises(DatasetError, match=r"No samples: all 3 of dataset 'test' are used for calibration"):
        open_validation(loaded)
