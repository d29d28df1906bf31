"""Text through a tokenizer: what BERT and its kind are fed with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field, StrictBool, StrictInt, model_validator
from typing_extensions import Self

from calib.data.dataset import Dataset, Padding, Sample
from calib.data.sources.base import Opening, RelativePath, SourceModel
from calib.data.sources.findings import Findings
from calib.data.sources.kept import Kept
from calib.data.sources.labels import ClassNames, labels_of_texts, read_class_names
from calib.data.sources.text_rows import Column, TextForm, TextRow, form_of, read_rows
from calib.data.truth import Pair
from calib.errors import DatasetError, require
from calib.files import sha256_file

__all__ = ["TextSource"]

Part = Literal["input_ids", "attention_mask", "token_type_ids"]


def _by_name(value: object) -> object:
    return {name: name for name in value} if isinstance(value, (list, tuple)) else value


class TextSource(SourceModel):
    """Texts, tokenized; samples of a batch are filled up to the longest one.

    Attributes:
        kind: ``text``.
        path: A text file: plain lines, CSV, TSV, or JSON line by line.
        format: ``lines``, ``csv``, ``tsv`` or ``jsonl``; by the file's ending if omitted.
        tokenizer: The ``tokenizer.json`` that belongs to the model, by its path from the data root.
        text: Column of the text, by name or number from 0; not for lines.
        pair: Column of a second text.
        pairs: Whether ``text`` and ``pair`` are two samples, whose similarity is the label: for sentence
            encoders. Otherwise both go into one sample, with the separator between.
        label: Column of the label: a class number or name, or a measured value.
        label_offset: Added to class numbers.
        class_names: The classes in the order of their numbers, or a text file with one a line.
        max_length: Tokens a sample; longer texts are cut.
        pad: ``batch``: to the longest sample of a batch. ``max_length``: always to that.
        pad_id: Token that fills up; by default the tokenizer's own.
        inputs: What the model takes, of input_ids, attention_mask and token_type_ids; or a map of these
            to the names of the model's inputs.
        dtype: Their type.
    """

    kind: Literal["text"]
    path: RelativePath
    format: TextForm | None = None
    tokenizer: RelativePath
    text: Column = 0
    pair: Column | None = None
    pairs: StrictBool = False
    label: Column | None = None
    label_offset: StrictInt = 0
    class_names: ClassNames | None = None
    max_length: Annotated[StrictInt, Field(ge=2, le=1 << 20)] = 128
    pad: Literal["batch", "max_length"] = "batch"
    pad_id: Annotated[StrictInt, Field(ge=0)] | None = None
    inputs: Annotated[dict[Part, str], BeforeValidator(_by_name), Field(min_length=1)] = Field(
        default_factory=lambda: {part: part for part in get_args(Part)}
    )
    dtype: Literal["int64", "int32"] = "int64"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pairs and (self.pair is None or self.label is None):
            raise ValueError("pairs needs the columns text, pair and label (how alike they are)")
        if len(set(self.inputs.values())) < len(self.inputs):
            raise ValueError("inputs names one input of the model twice")
        return self

    def open(self, opening: Opening) -> Dataset:
        """Reads the texts; they are tokenized when they are asked for."""
        _refuse_steps(opening)
        path, vocabulary = opening.inside(self.path, "path"), opening.inside(self.tokenizer, "tokenizer")
        tokenizer = Kept(partial(_tokenizer, vocabulary, self.max_length))
        padding = self._padding(*tokenizer())
        rows, notes = self._rows(path, opening)
        labels, class_names = self._labels(rows, path, opening)
        places = [row for row in rows for _ in range(1 + self.pairs)]
        samples = _TextSamples(self, path, tokenizer, self._texts(rows), places, labels)
        return Dataset(
            name=opening.name,
            ids=samples.ids,
            load=samples.load,
            labels=labels,
            class_names=class_names,
            notes=notes,
            description=self._described(opening, vocabulary),
            content=samples.content,
            padding=padding,
            groups=tuple(row.index for row in places) if self.pairs else None,
        )

    def _rows(self, path: Path, opening: Opening) -> tuple[list[TextRow], tuple[str, ...]]:
        """The rows that can be used, and what is worth noting."""
        form = self.format or form_of(path)
        findings = Findings(opening, str(path))
        rows = read_rows(path, form, self._columns(form, opening), findings)
        notes = findings.settle()
        if not rows:
            raise findings.no_samples(f"{path} has no rows that can be used")
        return rows, tuple(notes)

    def _described(self, opening: Opening, vocabulary: Path) -> dict[str, Any]:
        """With no steps of preprocessing: there are none, not even a layout."""
        facts = {"tokenizer_sha256": sha256_file(vocabulary)}
        return {**self.description(opening, facts=facts), "preprocess": {}}

    def _columns(self, form: TextForm, opening: Opening) -> list[Column]:
        given = [column for column in (self.text, self.pair, self.label) if column is not None]
        if form == "lines" and len(given) > 1:
            raise DatasetError(
                f"{opening.where('format')}: plain lines have no columns. Set format: csv or tsv."
            )
        return given

    def _texts(self, rows: list[TextRow]) -> list[tuple[str, ...]]:
        """What is tokenized for each sample."""
        if self.pairs:
            return [(cell,) for row in rows for cell in row.cells[:2]]
        count = 1 if self.pair is None else 2
        return [row.cells[:count] for row in rows]

    def _labels(
        self, rows: list[TextRow], path: Path, opening: Opening
    ) -> tuple[tuple[Any, ...] | None, tuple[str, ...] | None]:
        if self.label is None:
            return None, None
        given = {f"line {row.line}": row.cells[-1].strip() for row in rows}
        if self.pairs:
            scores, _ = labels_of_texts(given, "regression", what=str(path))
            pairs = zip(rows, scores, strict=True)
            return tuple(Pair(str(row.index), s) for row, s in pairs for _ in range(2)), None
        names = None if self.class_names is None else read_class_names(self.class_names, opening)
        return labels_of_texts(
            given, opening.task, offset=self.label_offset, class_names=names, what=str(path)
        )

    def _padding(self, tokenizer: Any, own: Mapping[str, Any]) -> Mapping[str, Padding]:
        values = {
            "input_ids": self._pad_id(tokenizer, own),
            "attention_mask": 0,
            "token_type_ids": own.get("pad_type_id", 0),
        }
        to = self.max_length if self.pad == "max_length" else None
        return {name: Padding((0,), values[part], to) for part, name in self.inputs.items()}

    def _pad_id(self, tokenizer: Any, own: Mapping[str, Any]) -> int:
        if self.pad_id is not None:
            return self.pad_id
        if "pad_id" in own:
            return int(own["pad_id"])
        for token in ("[PAD]", "<pad>", "<|pad|>", "<PAD>"):
            number = tokenizer.token_to_id(token)
            if number is not None:
                return int(number)
        raise DatasetError(f"{self.tokenizer} does not say which token fills up shorter texts: give pad_id.")


class _TextSamples:
    """Reads a sample: tokenizes its texts."""

    def __init__(
        self,
        source: TextSource,
        path: Path,
        tokenizer: Kept[Any],
        texts: Sequence[tuple[str, ...]],
        places: Sequence[TextRow],
        labels: Sequence[Any] | None,
    ) -> None:
        self._source = source
        self._path = path
        self._tokenizer = tokenizer
        self._texts = texts
        self._places = places
        self._labels = labels
        halves = (".a", ".b") if source.pairs else ("",)
        self.ids = tuple(
            f"{source.path}#{row.index}{halves[place % len(halves)]}" for place, row in enumerate(places)
        )

    def load(self, index: int) -> Sample:
        """The sample at an index."""
        encoding = self._tokenizer()[0].encode(*self._texts[index])
        found = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        dtype = np.dtype(self._source.dtype)
        arrays = {name: np.array(found[part], dtype) for part, name in self._source.inputs.items()}
        label = None if self._labels is None else self._labels[index]
        return Sample(self.ids[index], arrays, label, f"{self._path}, line {self._places[index].line}")

    def content(self, index: int) -> str:
        """Identifies the texts of the sample at an index."""
        return hashlib.sha256("\0".join(self._texts[index]).encode()).hexdigest()


def _refuse_steps(opening: Opening) -> None:
    given = sorted(opening.preprocess.model_fields_set)
    if given:
        raise DatasetError(
            f"Recipe {opening.name!r}, preprocess.{given[0]}: text has no such steps, but its tokenizer. "
            "Leave preprocess out."
        )


def _tokenizer(path: Path, max_length: int) -> tuple[Any, Mapping[str, Any]]:
    """The tokenizer of a file, set to cut at a length, and how it would fill up by itself.

    Filling up is left to when samples are stacked.
    """
    tokenizers = require("tokenizers", "text", "Tokenizing text")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        padding = dict(tokenizer.padding or {})
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length)
    except Exception as error:  # the library raises bare Exception
        raise DatasetError(f"{path} is no tokenizer.json: {error}.") from error
    return tokenizer, padding
