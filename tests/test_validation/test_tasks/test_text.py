from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_judging import judged, metrics, numbered, values

from calib.errors import UsageError, ValidationError
from calib.validation.intervals import share_interval
from calib.validation.tasks import Context
from calib.validation.tasks.text import edit_distance, greedy_ctc

CHARACTERS = "abcdefghij"
TASK: dict[str, Any] = {"kind": "text"}


def written(*texts: str, steps: int = 12, blank: int = 0, extra: int = 1) -> np.ndarray:
    """Scores that read as the texts: a blank after each character."""
    scores = np.zeros((len(texts), steps, len(CHARACTERS) + 1 + extra), np.float32)
    order = [*range(len(CHARACTERS) + extra)]
    order.insert(blank, -1)
    for row, text in enumerate(texts):
        for step in range(steps):
            place, pause = divmod(step, 2)
            want = -1 if pause or place >= len(text) else (CHARACTERS + " ").index(text[place])
            scores[row, step, order.index(want)] = 1.0
    return scores


def context(labels: list[Any], characters: str = "\n".join(CHARACTERS)) -> Context:
    return Context(numbered(labels), {"character": characters})


def read(labels: list[Any], fp32: np.ndarray, int8: np.ndarray | None = None, **options: Any) -> Any:
    outputs = [None if scores is None else {"y": scores} for scores in (fp32, int8)]
    return judged({**TASK, **options}, numbered(labels), *outputs, context=context(labels))


def test_exact_matches_and_wrong_characters() -> None:
    labels = ["abc", "dead", "face", "a b"]
    found = read(labels, written(*labels), written("abc", "dad", "fade", "a b"))
    right, error = metrics(found)["exact_match"], metrics(found)["CER"]
    assert (right.value, error.value) == (1.0, 0.0)
    right, error = metrics(found, 1)["exact_match"], metrics(found, 1)["CER"]
    assert (right.value, right.successes) == (0.5, 2)
    assert error.value == pytest.approx((1 + 1) / (3 + 4 + 4 + 3))
    assert (right.low, right.high) == (share_interval(2, 4).low, share_interval(2, 4).high)
    assert right.drop_method == "Tango score"
    assert (error.higher_is_better, error.unit) == (False, "share")
    assert error.drop_method == "BCa bootstrap, 1999 resamples, seed 0"
    assert values(found, 1)["text_agreement"] == 0.5
    changes = {sample.sample_id: sample.change for sample in found.worst(found.findings[1])}
    assert changes["s1"] == "'dead' → 'dad'"


@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@pytest.mark.parametrize("blank", [0, 11])
def test_layouts_and_blanks(layout: str, blank: int) -> None:
    labels = ["abba", "c"]
    scores = written(*labels, blank=blank)
    if layout == "TNC":

        def answer(index: np.ndarray) -> dict[str, np.ndarray]:
            return {"y": scores[index].transpose(1, 0, 2)}

        found = judged(
            {**TASK, "layout": layout, "blank": blank}, numbered(labels), answer, context=context(labels)
        )
    else:
        found = read(labels, scores, blank=blank)
    assert values(found)["exact_match"] == 1.0


def test_repeats_are_one_unless_a_blank_parts_them() -> None:
    assert greedy_ctc([1, 1, 2, 2, 2, 0, 2, 0, 0], ["", "a", "b"]) == "abb"
    assert greedy_ctc([], ["", "a"]) == ""


def test_what_is_compared_can_be_stated() -> None:
    labels = ["AB c", "d e"]
    scores = written("abc", "de")
    assert values(read(labels, scores))["exact_match"] == 0.0
    found = read(labels, scores, ignore_case=True, ignore_space=True)
    assert values(found)["exact_match"] == 1.0


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_edit_distance_is_the_shortest_way(first: str, second: str) -> None:
    # The longest common subsequence bounds it; a breadth-first search over edits finds it.
    frontier, distance = {first}, 0
    while second not in frontier:
        distance += 1
        frontier = {
            other
            for text in frontier
            for place in range(len(text) + 1)
            for other in (
                text[:place] + text[place + 1 :],
                *(text[:place] + letter + text[place:] for letter in "ab"),
                *(text[:place] + letter + text[place + 1 :] for letter in "ab"),
            )
            if len(other) <= 7
        }
    assert edit_distance(first, second) == distance
    common = sum(
        block.size for block in difflib.SequenceMatcher(None, first, second, False).get_matching_blocks()
    )
    assert distance <= max(len(first), len(second)) <= len(first) + len(second) - common


class TestCharacters:
    def test_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "characters.txt"
        file.write_bytes("\r\n".join(CHARACTERS).encode("utf-8-sig"))
        labels = ["abc"]
        known = Context(numbered(labels), {}, lambda path, option: tmp_path / path)
        task = {**TASK, "characters": "characters.txt"}
        assert (
            values(judged(task, numbered(labels), {"y": written("abc")}, context=known))["exact_match"] == 1.0
        )

    def test_none_at_all(self) -> None:
        with pytest.raises(UsageError, match=r"no key 'character' \(keys: none\). Give a file"):
            judged(TASK, numbered(["a"]), {"y": written("a")})

    def test_another_number_of_them(self) -> None:
        with pytest.raises(
            UsageError, match=r"has 13 classes, and the model's metadata 'character' has 10 char"
        ):
            read(["a"], written("a", extra=2))

    def test_a_missing_file(self, tmp_path: Path) -> None:
        known = Context(numbered(["a"]), {}, lambda path, option: tmp_path / path)
        with pytest.raises(ValidationError, match=r"Cannot read list of characters .*none\.txt"):
            judged({**TASK, "characters": "none.txt"}, numbered(["a"]), {"y": written("a")}, context=known)


def test_next_to_nothing_read_is_doubted() -> None:
    labels = ["abc", "def"]
    (warning,) = read(labels, written("jjj", "jjj")).warnings()
    assert warning.startswith("FP32 reads only 0 of 2 lines exactly (100% wrong characters)")


def test_without_texts_only_agreement_is_measured() -> None:
    found = read([None, None], written("a", "b"), written("a", "c"))
    assert values(found, 1) == {"text_agreement": 0.5}
    assert found.warnings() == ("Dataset 'numbered' has no texts: only agreement with FP32 is measured.",)
