"""Text recognition: lines that are read exactly, and the share of wrong characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from calib.data import Array, Batch
from calib.data.task_options import TextOptions
from calib.errors import UsageError, ValidationError
from calib.files import read_bounded_text
from calib.validation.resampling import Statistic
from calib.validation.tasks.base import Context, Figure, Judge, Task, labelled, pick_output
from calib.validation.tasks.statistics import ratio
from calib.wording import counted

__all__ = ["TextTask", "edit_distance", "greedy_ctc"]

_LOW = 0.05
"""Recognisers that people deploy read most lines; wrong characters, blanks or preprocessing leave none."""

_METADATA = "character"
_MAX_BYTES = 16 << 20
_Answers = tuple[str, ...]


def greedy_ctc(classes: Sequence[int], characters: Sequence[str], blank: int = 0) -> str:
    """Reads a row of best classes: repeats are one, blanks are left out.

    Graves et al., "Connectionist temporal classification", ICML 2006, §3.2, best path decoding.

    Args:
        classes: The class with the highest score of each step.
        characters: Character of each class; what stands at the blank is not read.
        blank: Class number of the blank.

    >>> greedy_ctc([1, 1, 0, 1, 2, 2], ["", "a", "b"])
    'aab'
    """
    kept = [one for index, one in enumerate(classes) if index == 0 or classes[index - 1] != one]
    return "".join(characters[one] for one in kept if one != blank)


def edit_distance(first: str, second: str) -> int:
    """Characters to insert, delete or replace to make one text of another (Levenshtein).

    >>> edit_distance("kitten", "sitting")
    3
    """
    if first == second:
        return 0
    row = list(range(len(second) + 1))
    for index, one in enumerate(first, 1):
        corner, row[0] = row[0], index
        for place, other in enumerate(second, 1):
            corner, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, corner + (one != other))
    return row[-1]


class _TextJudge(Judge[_Answers]):
    def __init__(self, task: TextTask) -> None:
        self._task = task
        self._labelled: bool | None = None
        self.read: list[str] = []
        self._right = bytearray()
        self._same = bytearray()
        self._edits: list[int] = []
        self._lengths: list[int] = []

    def add(self, answers: _Answers, batch: Batch, baseline: _Answers | None) -> None:
        self._labelled = labelled(batch, str, "a text", self._labelled)
        self.read.extend(answers)
        if self._labelled:
            for label, answer in zip(map(self._task.compared, batch.labels), answers, strict=True):
                mine = self._task.compared(answer)
                self._right.append(mine == label)
                self._edits.append(edit_distance(mine, label))
                self._lengths.append(len(label))
        if baseline is not None:
            self._same += bytes(map(str.__eq__, answers, baseline))

    def figures(self) -> tuple[Figure, ...]:
        count, found = len(self.read), []
        if self._labelled:
            characters = sum(self._lengths)
            error = sum(self._edits) / characters if characters else None
            note = "" if characters else "all labels are empty"
            found = [
                Figure("exact_match", None, count, sum(self._right)),
                Figure("CER", error, count, higher_is_better=False, note=note),
            ]
        if self._same:
            found.append(Figure("text_agreement", None, count, sum(self._same)))
        return tuple(found)

    def statistic(self) -> Statistic | None:
        return ratio("CER", self._edits, self._lengths) if sum(self._lengths) else None

    @property
    def hits(self) -> Mapping[str, npt.NDArray[np.bool_]]:
        known = {"exact_match": self._right, "text_agreement": self._same}
        return {name: np.frombuffer(bytes(found), np.bool_) for name, found in known.items() if found}

    def changed(self, baseline: Judge[_Answers]) -> npt.NDArray[np.bool_]:
        return ~np.frombuffer(bytes(self._same), np.bool_)

    def change(self, baseline: Judge[_Answers], index: int) -> str:
        assert isinstance(baseline, _TextJudge)
        before, after = baseline.read[index], self.read[index]
        return "" if before == after else f"{before!r} → {after!r}"


class TextTask(Task[_Answers]):
    """Lines of text.

    Attributes:
        options: What the recipe says.
    """

    kind = "text"
    main = "exact_match"

    def __init__(self, options: TextOptions, context: Context) -> None:
        self.options = options
        self._output = options.output
        self._name = context.dataset.name
        self._source, self._given = _characters(options, context)
        self._known: list[str] = []
        self._without = False

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> _Answers:
        samples, first = len(batch), 0 if self.options.layout == "NTC" else 1
        self._output = pick_output(
            outputs,
            self._output,
            lambda array: array.ndim == 3 and array.shape[first] == samples and array.dtype.kind == "f",
            f"scores of characters {list(self.options.layout)} for {samples} samples",
        )
        self._without = self._without or all(label is None for label in batch.labels)
        scores = np.moveaxis(outputs[self._output], first, 0)
        self._known = self._known or self._characters(scores.shape[2])
        best = scores.argmax(axis=2)
        # Padding beside a line reads as blanks.
        return tuple(greedy_ctc(row.tolist(), self._known, self.options.blank).strip() for row in best)

    def _characters(self, classes: int) -> list[str]:
        """The character of each class: the blank is put in, and a space at the end where one is missing."""
        missing = classes - 1 - len(self._given)
        if missing not in (0, 1) or (missing and " " in self._given) or self.options.blank >= classes:
            raise UsageError(
                f"Output {self._output!r} has {counted(classes, 'class[es]')}, and {self._source} has "
                f"{len(self._given)} "
                f"characters: expected {classes - 1}, and a blank as class {self.options.blank} (or "
                f"{classes - 2}, where the space comes last). Give the file that belongs to the model with "
                "task: {characters: …}, or set task: {blank: …}."
            )
        known = [*self._given, " "] if missing else list(self._given)
        known.insert(self.options.blank, "")
        return known

    def compared(self, text: str) -> str:
        """A text as it is compared: composed characters, no blanks at its ends, and what the recipe says."""
        text = unicodedata.normalize("NFC", text).strip()
        text = text.casefold() if self.options.ignore_case else text
        return "".join(text.split()) if self.options.ignore_space else text

    @override
    def judge(self) -> Judge[_Answers]:
        return _TextJudge(self)

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """Next to no line that is read exactly."""
        hits = baseline.hits.get("exact_match")
        if hits is None or hits.mean() >= _LOW:
            return ()
        error = next(one.value for one in baseline.figures() if one.name == "CER")
        wrong = "" if error is None else f" ({100 * error:.0f}% wrong characters)"
        return (
            f"FP32 reads only {int(hits.sum())} of {len(hits)} lines exactly{wrong}: doubt the characters' "
            "order, the blank, the labels or the preprocessing before INT8.",
        )

    @override
    def warnings(self) -> tuple[str, ...]:
        if not self._without:
            return ()
        return (f"Dataset {self._name!r} has no texts: only agreement with FP32 is measured.",)


def _characters(options: TextOptions, context: Context) -> tuple[str, list[str]]:
    """Where the characters are from, and what they are."""
    if options.characters is None:
        if _METADATA not in context.metadata:
            known = ", ".join(context.metadata) or "none"
            raise UsageError(
                f"Text recognition needs the characters of the model's classes: its metadata has no key "
                f"{_METADATA!r} (keys: {known}). Give a file with one a line, with task: {{characters: …}}."
            )
        return f"the model's metadata {_METADATA!r}", _lines(context.metadata[_METADATA])
    path = context.file(options.characters, "characters")
    advice = "Give a UTF-8 file, one a line."
    text = read_bounded_text(path, "list of characters", ValidationError, limit=_MAX_BYTES, advice=advice)
    return str(path), _lines(text)


def _lines(text: str) -> list[str]:
    """A character a line. A blank line at the end is the file's end, not a character."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
