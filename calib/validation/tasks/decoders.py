"""How the outputs of detectors are read: each decoder gives the raw boxes of one image.

Boxes are in the model's own coordinates and format; confidence, suppression, class numbers and pixels of the
image come after, the same for every decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calib.data import Array, load_object
from calib.data.task_options import DetectionOptions
from calib.errors import UsageError, ValidationError
from calib.validation.tasks.base import rows_of, shapes_of
from calib.validation.tasks.boxes import Detections
from calib.validation.tasks.user_code import called
from calib.wording import counted

__all__ = ["Decoder", "Rows", "find_decoder"]

_ALIASES = {"yolov7": "yolov5", "yolov11": "yolov8"}


@dataclass(frozen=True)
class Rows:
    """Where an image's outputs are: the outputs of its batch, and its row."""

    outputs: Mapping[str, Array]
    row: int
    samples: int
    origin: str
    size: tuple[int, int] | None

    def of(self, name: str) -> Array:
        """The image's part of an output that has an axis of samples."""
        part: Array = self.outputs[name][self.row]
        return part


Decode = Callable[[Rows], Detections]


@dataclass(frozen=True)
class Decoder:
    """Reads the outputs of one image.

    Attributes:
        decode: Gives the raw detections.
        box_format: The format of its boxes: "cxcywh" or "xyxy".
        overlap: IoU beyond which doubles are dropped where the recipe does not say; None leaves them.
    """

    decode: Decode
    box_format: str
    overlap: float | None = None


def find_decoder(options: DetectionOptions) -> Decoder:
    """The decoder that a recipe names.

    Raises:
        DatasetError: The function of the user cannot be had.
    """
    name = _ALIASES.get(options.decoder, options.decoder)
    if ":" in name:
        return _own_decoder(name)
    makers: dict[str, Callable[[DetectionOptions], Decoder]] = {
        "yolov5": lambda given: Decoder(_yolo(given, transposed=False), "cxcywh", 0.65),
        "yolov8": lambda given: Decoder(_yolo(given, transposed=True), "cxcywh", 0.7),
        "end2end": lambda given: Decoder(_end2end(given), "xyxy"),
        "torchvision": lambda given: Decoder(_torchvision(given), "xyxy"),
        "detr": lambda given: Decoder(_detr(given), "cxcywh"),
    }
    return makers[name](options)


def _single(options: DetectionOptions, outputs: Mapping[str, Array], samples: int, wanted: str) -> str:
    """The one output of decoders that read a single one."""
    named = options.outputs.get("detections")
    if named is not None:
        _check_name(named, outputs)
        return named
    fitting = [
        name
        for name, array in outputs.items()
        if array.ndim == 3 and len(array) == samples and array.dtype.kind == "f"
    ]
    if len(fitting) != 1:
        which = f"outputs {', '.join(fitting)} could all be that" if fitting else "no output is that"
        raise ValidationError(
            f"Decoder {options.decoder!r} reads {wanted}: {which}. The model has {shapes_of(outputs)}. Name "
            "it with task: {outputs: {detections: …}}, or choose another decoder."
        )
    return fitting[0]


def _check_name(name: str, outputs: Mapping[str, Array]) -> None:
    if name not in outputs:
        raise UsageError(f"task.outputs: the model has no output {name!r}. It has {shapes_of(outputs)}.")


def _yolo(options: DetectionOptions, *, transposed: bool) -> Decode:
    wanted = (
        "a float output [N, 4 + classes, boxes]" if transposed else "a float output [N, boxes, 5 + classes]"
    )
    fewest = 5 if transposed else 6

    def decode(rows: Rows) -> Detections:
        name = _single(options, rows.outputs, rows.samples, wanted)
        table = rows.of(name).astype(np.float64)
        table = table.T if transposed else table
        if table.ndim != 2 or table.shape[1] < fewest:
            raise ValidationError(
                f"Decoder {options.decoder!r} reads {wanted}; output {name!r} is "
                f"{list(rows.outputs[name].shape)}. Choose another decoder."
            )
        if table.shape[1] > table.shape[0] and table.shape[1] > 1000:
            other = "yolov5" if transposed else "yolov8"
            raise ValidationError(
                f"Decoder {options.decoder!r} would read {table.shape[0]} boxes of {table.shape[1]} numbers "
                f"from output {name!r}, {list(rows.outputs[name].shape)}: boxes and numbers are the other "
                f"way round. Choose decoder: {other}."
            )
        scores = table[:, 4:] if transposed else table[:, 4:5] * table[:, 5:]
        return _scored(table[:, :4], scores, options)

    return decode


def _scored(boxes: Array, scores: Array, options: DetectionOptions) -> Detections:
    """Boxes with a score for each class: one detection a class, or the best class of each."""
    if options.multi_label:
        index, classes = np.nonzero(scores > options.confidence)
        return Detections.of(boxes[index], scores[index, classes], classes)
    classes = scores.argmax(axis=1)
    return Detections.of(boxes, scores[np.arange(len(scores)), classes], classes)


def _end2end(options: DetectionOptions) -> Decode:
    wanted = "a float output [N, n, 6] of left, top, right, bottom, score, class"

    def decode(rows: Rows) -> Detections:
        name = _single(options, rows.outputs, rows.samples, wanted)
        table = rows.of(name)
        if table.ndim != 2 or table.shape[1] != 6:
            raise ValidationError(
                f"Decoder 'end2end' reads {wanted}; output {name!r} is {list(rows.outputs[name].shape)}. "
                "Choose another decoder."
            )
        return Detections.of(table[:, :4], table[:, 4], table[:, 5])

    return decode


def _named_outputs(
    options: DetectionOptions, outputs: Mapping[str, Array], wanted: Sequence[tuple[str, tuple[str, ...]]]
) -> list[str]:
    found = []
    for role, usual in wanted:
        name = options.outputs.get(role)  # type: ignore[call-overload]
        if name is not None:
            _check_name(name, outputs)
        else:
            name = next((one for one in usual if one in outputs), None)
        if name is None:
            raise ValidationError(
                f"Decoder {options.decoder!r} reads an output of {role}, called {' or '.join(usual)}; the "
                f"model has {shapes_of(outputs)}. Name it with task: {{outputs: {{{role}: …}}}}."
            )
        found.append(str(name))
    return found


def _torchvision(options: DetectionOptions) -> Decode:
    """Outputs boxes [n, 4], labels [n] and scores [n] of one image, or the same with an axis of samples."""
    roles = (("boxes", ("boxes",)), ("scores", ("scores",)), ("labels", ("labels", "classes")))

    def decode(rows: Rows) -> Detections:
        names = _named_outputs(options, rows.outputs, roles)
        parts = [_of_image(rows, name, axes) for name, axes in zip(names, (2, 1, 1), strict=True)]
        counts = {len(part) for part in parts}
        if len(counts) != 1 or parts[0].shape[1:] != (4,):
            raise ValidationError(
                f"Boxes, scores and labels do not belong together: {shapes_of(rows.outputs)}; expected boxes "
                "[n, 4], scores [n] and labels [n]."
            )
        return Detections.of(*parts)

    return decode


def _of_image(rows: Rows, name: str, axes: int) -> Array:
    """The part of one image: models that take one image a batch have no axis of samples."""
    array = rows.outputs[name]
    if array.ndim == axes + 1 and len(array) == rows.samples:
        return rows.of(name)
    if array.ndim == axes and rows.samples == 1:
        return array
    raise ValidationError(
        f"Output {name!r} is {list(array.shape)} for {rows.samples} samples: the boxes of one image cannot "
        "be told from those of another. Validate with --batch-size 1."
    )


def _detr(options: DetectionOptions) -> Decode:
    """Outputs logits [N, n, classes + 1] and boxes [N, n, 4]; the last class is "no object"."""
    roles = (("boxes", ("pred_boxes", "boxes")), ("scores", ("pred_logits", "logits")))

    def decode(rows: Rows) -> Detections:
        boxes, logits = (rows.of(name) for name in _named_outputs(options, rows.outputs, roles))
        if boxes.ndim != 2 or logits.ndim != 2 or len(boxes) != len(logits) or boxes.shape[1] != 4:
            raise ValidationError(
                f"Decoder 'detr' reads logits [N, n, classes + 1] and boxes [N, n, 4]; the model has "
                f"{shapes_of(rows.outputs)}. Choose another decoder."
            )
        wide = logits.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        scores = (powers / powers.sum(axis=1, keepdims=True))[:, :-1]
        classes = scores.argmax(axis=1)
        return Detections.of(boxes, scores[np.arange(len(scores)), classes], classes)

    return decode


def _own_decoder(name: str) -> Decoder:
    """The user's: outputs for one image, and the size of the model's input → boxes, scores, classes."""
    function = load_object(name)

    def decode(rows: Rows) -> Detections:
        outputs = rows_of(rows.outputs, rows.row, rows.samples, f"Decoder {name!r}")
        given: Any = called(f"Decoder {name!r}", f"sample {rows.origin}", function, outputs, rows.size)
        try:
            boxes, scores, classes = given
            found = Detections.of(boxes, scores, classes)
            right = len(found.boxes) == len(found.scores) == len(found.classes)
        except (TypeError, ValueError) as error:
            raise ValidationError(
                f"Decoder {name!r} on sample {rows.origin} must give boxes [n, 4], scores [n] and classes "
                f"[n]: {error}."
            ) from error
        if not right:
            raise ValidationError(
                f"Decoder {name!r} on sample {rows.origin} gave {counted(len(found.boxes), 'box[es]')}, "
                f"{counted(len(found.scores), 'score[s]')} and "
                f"{counted(len(found.classes), 'class[es]')}: they must be equally many."
            )
        return found

    return Decoder(decode, "xyxy")
