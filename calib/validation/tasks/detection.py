"""Detection: COCO's mean average precision, and which of FP32's detections a precision keeps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from calib.data import Array, Batch
from calib.data.geometry import Geometry
from calib.data.task_options import DetectionOptions
from calib.data.truth import Boxes
from calib.errors import UsageError, require
from calib.validation.resampling import Statistic
from calib.validation.tasks.average_precision import AveragePrecision
from calib.validation.tasks.base import ClassCount, Context, Figure, Judge, Task, labelled
from calib.validation.tasks.boxes import Detections, corners, count_matches, suppress
from calib.validation.tasks.class_maps import COCO_80_TO_91, mapped_classes, named_classes
from calib.validation.tasks.coco import match_images
from calib.validation.tasks.decoders import Rows, find_decoder
from calib.validation.tasks.statistics import joined, ratio

__all__ = ["DetectionTask"]

_LOW = 0.05
"""Detectors that people deploy reach ten times that on their own data, while wrong classes, coordinates or
channel orders leave next to nothing."""

_GOOD = 0.2
_OTHER_CLASSES: Mapping[str, Mapping[int, int] | int] = {
    "every class one higher": 1,
    "every class one lower": -1,
    "the map coco80_to_91": COCO_80_TO_91,
}

_TRUTH = "boxes (calib.data.truth.Boxes)"
_Answers = tuple[Detections, ...]


class _BoxJudge(Judge[_Answers]):
    def __init__(self, task: DetectionTask) -> None:
        self._task = task
        self.found: list[Detections] = []
        self.truth: list[Boxes] = []
        self.ids: list[str] = []
        self._labelled: bool | None = None
        self._same: list[int] = []
        self._theirs: list[int] = []

    def add(self, answers: _Answers, batch: Batch, baseline: _Answers | None) -> None:
        self._labelled = labelled(batch, Boxes, _TRUTH, self._labelled)
        self.found.extend(answers)
        if self._labelled:
            self.truth.extend(batch.labels)
        self.ids.extend(batch.ids)
        if baseline is None:
            return
        for mine, theirs in zip(map(self._shown, answers), map(self._shown, baseline), strict=True):
            self._same.append(count_matches(theirs, mine))
            self._theirs.append(len(theirs))

    def _shown(self, found: Detections) -> Detections:
        return found.take(found.scores >= self._task.options.shown)

    @cached_property
    def precision(self) -> AveragePrecision | None:
        """None without labels, or without a single object."""
        if not self.truth:
            return None
        matches = match_images(self.truth, self.found, self._task.options.max_detections)
        return AveragePrecision(matches) if any(one.objects.any() for one in matches) else None

    def mean_with(self, change: Mapping[int, int] | int) -> float:
        """MAP with other class numbers: shifted, or by a map."""
        renamed = []
        for one in self.found:
            if isinstance(change, int):
                renamed.append(Detections(one.boxes, one.scores, one.classes + change))
                continue
            classes, known = mapped_classes(one.classes, change)
            renamed.append(Detections(one.boxes, one.scores, classes).take(known))
        precision = AveragePrecision(match_images(self.truth, renamed, self._task.options.max_detections))
        value = float(precision(np.ones((1, precision.units)))[0, 0])
        return value if np.isfinite(value) else 0.0

    def figures(self) -> tuple[Figure, ...]:
        count = len(self.found)
        found: list[Figure] = []
        if self._labelled:
            precision = self.precision
            if precision is None:
                note = "no image has an object that is to be found"
                found += [Figure(name, None, count, note=note) for name in AveragePrecision.names]
            else:
                values = precision(np.ones((1, precision.units)))[0].tolist()
                names = AveragePrecision.names
                found += [Figure(name, value, count) for name, value in zip(names, values, strict=False)]
        return (*found, *self._agreement())

    def _agreement(self) -> tuple[Figure, ...]:
        """Twice the common detections, divided by those of both: 1 where all are the same."""
        if len(self._same) != len(self.found) or not self._same:
            return ()
        both = self._both
        if not both.sum():
            note = f"neither precision finds anything with a score of {self._task.options.shown:g}: equal"
            return (Figure("detection_agreement", 1.0, 0, unit="", note=note),)
        value = 2 * sum(self._same) / float(both.sum())
        return (Figure("detection_agreement", value, int(both.sum()), note=self._moved()),)

    def _moved(self) -> str:
        same = sum(self._same)
        lost, new = sum(self._theirs) - same, int(self._both.sum()) - sum(self._theirs) - same
        shown = f"with a score of {self._task.options.shown:g} or more"
        return (
            f"{lost} of FP32's {sum(self._theirs)} detections {shown} lost, {new} new" if lost or new else ""
        )

    @property
    def _both(self) -> npt.NDArray[np.int64]:
        mine = [len(self._shown(one)) for one in self.found]
        return np.array(mine) + np.array(self._theirs, np.int64)

    def statistic(self) -> Statistic | None:
        parts: list[Statistic] = [] if self.precision is None else [self.precision]
        if len(self._same) == len(self.found) > 0 and self._both.sum():
            parts.append(ratio("detection_agreement", 2 * np.array(self._same), self._both))
        return joined(parts)

    def classes(self) -> tuple[ClassCount, ...]:
        precision = self.precision
        known = () if precision is None else precision.matches
        return tuple(ClassCount(one.label, int(one.objects.sum())) for one in known)

    def changed(self, baseline: Judge[_Answers]) -> npt.NDArray[np.bool_]:
        return np.array([any(self._lost_and_new(index)) for index in range(len(self._same))], np.bool_)

    def _lost_and_new(self, index: int) -> tuple[int, int]:
        same = self._same[index]
        return self._theirs[index] - same, len(self._shown(self.found[index])) - same

    def change(self, baseline: Judge[_Answers], index: int) -> str:
        lost, new = self._lost_and_new(index)
        if not lost and not new:
            return ""
        return f"{lost} of {self._theirs[index]} detections lost, {new} new"


class DetectionTask(Task[_Answers]):
    """Boxes with classes and scores.

    Attributes:
        options: What the recipe says.
    """

    kind = "detection"
    class_metric = "AP"
    main = "mAP"

    def __init__(self, options: DetectionOptions, context: Context) -> None:
        require("pycocotools.cocoeval", "coco", "Judging detections")
        self.options = options
        self._decoder = find_decoder(options)
        self._map = named_classes(options.class_map)
        self._unmapped: set[int] = set()
        self._names = context.dataset.class_names
        self._unmoved = False

    @override
    def answers(self, outputs: Mapping[str, Array], batch: Batch) -> _Answers:
        return tuple(self._image(outputs, batch, row) for row in range(len(batch)))

    def _image(self, outputs: Mapping[str, Array], batch: Batch, row: int) -> Detections:
        geometry = batch.geometries[row] if batch.geometries else None
        size = geometry.target if geometry is not None else _input_size(batch)
        # What is not finite is left out here, and the comparison warns of it; numpy need not.
        with np.errstate(invalid="ignore", over="ignore"):
            found = self._decoder.decode(Rows(outputs, row, len(batch), batch.origins[row], size))
        finite = np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores)
        found = found.take(finite & (found.scores > self.options.confidence))
        boxes = found.boxes
        if (self.options.box_format or self._decoder.box_format) == "cxcywh":
            boxes = corners(boxes)
        found = Detections(self._pixels(boxes, size), found.scores, found.classes)
        overlap = self.options.nms if self.options.nms is not None else self._decoder.overlap
        if overlap is not None:
            found = suppress(found, overlap, self.options.max_detections)
        found = self._mapped(found.ordered(self.options.max_detections))
        return self._in_image(found, geometry, batch.labels[row])

    def _pixels(self, boxes: Array, size: tuple[int, int] | None) -> Array:
        if self.options.coordinates == "pixels":
            return boxes
        if size is None:
            raise UsageError(
                "task.coordinates is relative, and the model has no input that is an image: its size is "
                "not known."
            )
        pixels: Array = boxes * np.tile([size[1], size[0]], 2)
        return pixels

    def _in_image(self, found: Detections, geometry: Geometry | None, truth: Any) -> Detections:
        """The boxes in pixels of the image as it was decoded."""
        if geometry is not None:
            boxes = geometry.to_source(found.boxes)
            # What lies in the padding of a letterbox alone has no part in the image.
            inside: npt.NDArray[np.bool_] = np.all(boxes[:, 2:] > boxes[:, :2], axis=1)
            return Detections(boxes, found.scores, found.classes).take(inside)
        self._unmoved = self._unmoved or isinstance(truth, Boxes)
        return found

    def _mapped(self, found: Detections) -> Detections:
        if self._map is None:
            return found
        classes, known = mapped_classes(found.classes, self._map)
        self._unmapped.update(found.classes[~known].tolist())
        return Detections(found.boxes[known], found.scores[known], classes[known])

    @override
    def judge(self) -> Judge[_Answers]:
        return _BoxJudge(self)

    @override
    def doubts(self, baseline: Judge[Any]) -> tuple[str, ...]:
        """No class in common, boxes out of place, or a low mAP."""
        assert isinstance(baseline, _BoxJudge)
        if baseline.precision is None:
            reason = "no image has an object that is to be found" if baseline.truth else "there are no boxes"
            return (f"{self.main} is not measured, only agreement with FP32: {reason}.",)
        answered = {int(label) for one in baseline.found for label in np.unique(one.classes)}
        wanted = {int(label) for one in baseline.truth for label in np.unique(one.classes)}
        doubt = "doubt the classes, the boxes' coordinates or the preprocessing before INT8."
        if not answered:
            return (f"The FP32 model finds nothing with a score above {self.options.confidence:g}: {doubt}",)
        if not answered & wanted:
            return (
                f"No predicted class occurs in the annotations: FP32 answers {_listed(answered)}, the "
                f"annotations have {_listed(wanted)}. State which is which with task: {{class_map: …}}, such "
                "as coco80_to_91, or with class_ids of the source, before judging INT8.",
            )
        mean = next(one.value for one in baseline.figures() if one.name == "mAP")
        if mean is not None and mean < _LOW:
            return (f"FP32 mAP is only {100 * mean:.1f}%: {doubt}{self._hint(baseline)}",)
        return ()

    def _hint(self, baseline: _BoxJudge) -> str:
        """What would make the score good: other class numbers, tried out; or boxes in the right place."""
        tried = {name: baseline.mean_with(change) for name, change in _OTHER_CLASSES.items()}
        name = max(tried, key=lambda one: tried[one])
        if tried[name] >= _GOOD:
            return f" With {name} it would be {100 * tried[name]:.1f}%: set task: {{class_map: …}}."
        if self._unmoved:
            return (
                " Boxes were taken as pixels of the image, since the dataset does not say how it was resized."
            )
        return ""

    @override
    def warnings(self) -> tuple[str, ...]:
        if not self._unmapped:
            return ()
        return (
            f"class_map has no class for the model's {_listed(self._unmapped)}: these detections were "
            "left out.",
        )


def _listed(classes: set[int]) -> str:
    numbers = sorted(classes)
    shown = ", ".join(map(str, numbers[:8]))
    return f"classes {shown}{f' … {numbers[-1]}' if len(numbers) > 8 else ''}"


def _input_size(batch: Batch) -> tuple[int, int] | None:
    """Height and width of the model's image input: N, C, H, W, or N, H, W, C."""
    for array in batch.inputs.values():
        if array.ndim == 4:
            first = array.shape[1] <= array.shape[3]
            height, width = array.shape[2:] if first else array.shape[1:3]
            return int(height), int(width)
    return None
