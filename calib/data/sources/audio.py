"""Audio: wav files as arrays, whole or window by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictBool, StrictInt, model_validator
from typing_extensions import Self

from calib.data.dataset import Array, Dataset, Sample
from calib.data.fingerprint import file_identity
from calib.data.preprocess import Preprocess
from calib.data.sources.base import Opening, RelativePath, SourceModel, listed
from calib.data.sources.findings import Findings
from calib.data.sources.folders import walk
from calib.data.sources.kept import Kept
from calib.data.sources.labels import labels_beside, number_classes
from calib.data.sources.wav import mono, open_wav
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["AudioSource"]

Length = Annotated[StrictInt, Field(ge=1, le=1 << 30)]


class AudioSource(SourceModel):
    """Wav files: 8, 16, 24, 32 bits or float, as float32 from -1 to 1.

    Without ``length`` and ``window`` each file is a sample as long as it is. With ``window`` each file is
    a sequence of samples, in order: that is what models with recurrent state are fed with.

    Attributes:
        kind: ``audio``.
        path: A wav file, or a folder of them; sub-folders count.
        sample_rate: What the model was trained with, in Hz. Files of another rate are refused: resample
            them before.
        mix: Whether several channels are averaged; otherwise such files are left out and noted.
        length: Values a sample: longer files are cut at the end, shorter ones filled up with zeros.
        window: Values a sample, where a file gives several.
        hop: Values from the start of one window to the next; ``window`` by default. What does not fill
            a window at the end is filled up with zeros.
        context: Values before each window that are put in front of it; zeros at the start of a file.
        channel_axis: Where the model has an axis for the channel: ``first`` for (1, length), ``last`` for
            (length, 1), ``none`` for (length).
        classes: ``folders``: the first sub-folder is the class, numbered as for images. ``none``: no
            labels, or those of ``labels``.
        labels: An npy or CSV file of labels: one a file in the order of their paths, or ``file,label``.
        input: Name of the model's input.
    """

    kind: Literal["audio"]
    path: RelativePath
    sample_rate: Annotated[StrictInt, Field(ge=1, le=1 << 20)]
    mix: StrictBool = False
    length: Length | None = None
    window: Length | None = None
    hop: Length | None = None
    context: Annotated[StrictInt, Field(ge=0, le=1 << 30)] = 0
    channel_axis: Literal["none", "first", "last"] = "none"
    classes: Literal["folders", "none"] = "none"
    labels: RelativePath | None = None
    input: Annotated[str, Field(min_length=1)] = "input"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.length is not None and self.window is not None:
            raise ValueError("expected length or window, not both")
        if self.window is None and (self.hop is not None or self.context):
            raise ValueError("hop and context are for windows: give window")
        if self.classes == "folders" and self.labels is not None:
            raise ValueError("expected classes: folders or labels, not both")
        return self

    def open(self, opening: Opening) -> Dataset:
        """Lists the files and reads the header of each."""
        place = opening.inside(self.path, "path")
        names = [""] if place.is_file() else [name for name in walk(place) if name.lower().endswith(".wav")]
        findings = Findings(opening, str(place))
        lengths = self._usable({name: place / name for name in names}, findings)
        notes = findings.settle()
        if not lengths:
            raise findings.no_samples(f"{place} gives no usable .wav file")
        labels, class_names = self._labels(list(lengths), names, place, opening)
        windows = [window for name, length in lengths.items() for window in self._windows(name, length)]
        samples = _AudioSamples(self, place, windows, labels, opening.preprocess)
        return Dataset(
            name=opening.name,
            ids=samples.ids,
            load=samples.load,
            labels=None if labels is None else tuple(labels[window.file] for window in windows),
            class_names=class_names,
            notes=(f"{counted(len(lengths), 'wav file[s]')}, {counted(len(windows), 'sample[s]')}.", *notes),
            description=self.description(opening),
            content=samples.content,
            groups=None if self.window is None else tuple(window.file for window in windows),
        )

    def _usable(self, files: Mapping[str, Path], findings: Findings) -> dict[str, int]:
        """Name of each usable file → its number of values."""
        found = {}
        for name, path in files.items():
            shown = name or path.name
            try:
                wav = open_wav(path)
            except DatasetError as error:
                findings.leave_out("damaged file[s]", f"{shown} ({error.__cause__ or error})")
                continue
            if wav.rate != self.sample_rate:
                findings.leave_out(
                    f"file[s] of another rate than {self.sample_rate} Hz", f"{shown} ({wav.rate} Hz)"
                )
            elif wav.channels > 1 and not self.mix:
                findings.leave_out("file[s] of several channels (mix: true averages them)", shown)
            elif not len(wav.values):
                findings.leave_out("file[s] without a value", shown)
            else:
                found[name] = len(wav.values)
        return found

    def _labels(
        self, kept: list[str], names: list[str], place: Path, opening: Opening
    ) -> tuple[dict[str, Any] | None, tuple[str, ...] | None]:
        if self.classes == "folders":
            stray = [name for name in names if "/" not in name]
            if stray:
                raise DatasetError(f"{place}: {listed(stray)} lies in no class folder.")
            numbers = number_classes((name.split("/")[0] for name in names), str(place))
            in_order = list(numbers.values()) == list(range(len(numbers)))
            return {name: numbers[name.split("/")[0]] for name in kept}, tuple(numbers) if in_order else None
        given, class_names = labels_beside(self.labels, names, opening)
        return None if given is None else dict(zip(names, given, strict=True)), class_names

    def _windows(self, name: str, length: int) -> list[_Window]:
        if self.window is None:
            return [_Window(name, 0, 0)]
        hop = self.hop or self.window
        # As many as it takes to reach the end.
        count = max(1, -(-max(length - self.window, 0) // hop) + 1)
        return [_Window(name, number, number * hop) for number in range(count)]


@dataclass(frozen=True)
class _Window:
    """A part of a file: its number, and its first value."""

    file: str
    index: int
    start: int


class _AudioSamples:
    """Reads a sample: a file or a window of it."""

    def __init__(
        self,
        source: AudioSource,
        place: Path,
        windows: Sequence[_Window],
        labels: Mapping[str, Any] | None,
        preprocess: Preprocess,
    ) -> None:
        self._source = source
        self._place = place
        self._windows = windows
        self._labels = labels
        self._preprocess = preprocess
        files = dict.fromkeys(window.file for window in windows)
        self._identities = {file: Kept(partial(file_identity, place / file)) for file in files}
        self.ids = tuple(map(self._id, windows))

    def _id(self, window: _Window) -> str:
        path = self._source.path
        base = str(PurePosixPath(path) / window.file) if window.file else path
        return base if self._source.window is None else f"{base}#{window.index}"

    def load(self, index: int) -> Sample:
        """The sample at an index."""
        source, window = self._source, self._windows[index]
        path = self._place / window.file
        values = self._with_channel(self._cut(open_wav(path).values, window))
        prepared = self._preprocess.apply(values, str(path))
        label = None if self._labels is None else self._labels[window.file]
        origin = str(path) if source.window is None else f"{path}, from value {window.start}"
        return Sample(self.ids[index], {source.input: prepared}, label, origin)

    def _cut(self, values: Array, window: _Window) -> Array:
        """The values of a sample out of those of its file: with its context, filled up with zeros."""
        source = self._source
        size = source.window or source.length or len(values)
        first = window.start - source.context
        cut: Array = np.zeros(source.context + size, np.float32)
        mixed = mono(values[max(first, 0) : window.start + size])
        at = max(-first, 0)
        cut[at : at + len(mixed)] = mixed
        return cut

    def _with_channel(self, values: Array) -> Array:
        axis = self._source.channel_axis
        return values if axis == "none" else values[None] if axis == "first" else values[:, None]

    def content(self, index: int) -> str:
        """Identifies what is stored for the sample at an index."""
        return self._identities[self._windows[index].file]()
