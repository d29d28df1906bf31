"""What a model is for, as a recipe states it: the task, and how its outputs are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    TypeAdapter,
    ValidationError,
)

from calib.data.sources.base import RelativePath
from calib.errors import UsageError

__all__ = [
    "TASK_MODELS",
    "ClassificationOptions",
    "CustomOptions",
    "DetectionOptions",
    "EmbeddingOptions",
    "RegressionOptions",
    "SegmentationOptions",
    "TaskOptions",
    "TextOptions",
    "parse_task",
]

_OBJECT = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"

Share = Annotated[float, Field(ge=0, le=1, strict=False)]
ClassNumber = Annotated[StrictInt, Field(ge=0)]
OutputName = Annotated[str, Field(min_length=1)]
UserFunction = Annotated[str, Field(pattern=_OBJECT)]

_DECODERS = ("yolov5", "yolov7", "yolov8", "yolov11", "end2end", "torchvision", "detr")


class _TaskModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassificationOptions(_TaskModel):
    """One class of several, by the highest score.

    Attributes:
        kind: "classification".
        output: The output that holds class scores; looked for where there is none.
        top_k: k of the second figure, top-k accuracy.
    """

    kind: Literal["classification"] = "classification"
    output: OutputName | None = None
    top_k: Annotated[StrictInt, Field(ge=2, le=1000)] = 5


def _decoder(name: str) -> str:
    if name in _DECODERS or ":" in name:
        return name
    raise ValueError(f"unknown decoder {name!r}: expected {', '.join(_DECODERS)}, or module:function")


class DetectionOptions(_TaskModel):
    """Boxes with classes and scores.

    Attributes:
        kind: "detection".
        decoder: How the outputs are read. "yolov5" and "yolov7": [N, boxes, 5 + C]. "yolov8" and "yolov11":
            [N, 4 + C, boxes]. "end2end": [N, n, 6] of left, top, right, bottom, score, class.
            "torchvision": outputs boxes, labels and scores. "detr": logits and boxes. Others as
            ``module:function``, called with the outputs of one image, as a batch of one, and the height and
            width of the model's input; it gives boxes (left, top, right, bottom), scores and classes.
        outputs: Names of the outputs that the decoder reads, where they are not called as it expects.
        class_map: Class that the model answers → class of the annotations: "identity", "coco80_to_91" (80
            classes in a row → COCO's ids from 1 to 90), or a mapping.
        confidence: Detections with a lower score are left out.
        nms: Overlap (IoU) beyond which the weaker of two boxes of a class is dropped; None where the model
            does that itself.
        multi_label: Whether a box of a YOLO output counts for every class above the confidence, as in YOLO's
            own validation, or for its best class alone.
        max_detections: Most detections of an image that count.
        coordinates: "pixels" of the model's input, or "relative" to its width and height.
        box_format: "cxcywh" (centre and size) or "xyxy" (corners); None for the decoder's usual one.
        shown: Score from which detections are compared with FP32's, one by one.
    """

    kind: Literal["detection"] = "detection"
    decoder: Annotated[str, AfterValidator(_decoder)]
    outputs: Mapping[Literal["boxes", "scores", "labels", "detections"], OutputName] = Field(
        default_factory=dict
    )
    class_map: Literal["identity", "coco80_to_91"] | dict[ClassNumber, ClassNumber] = "identity"
    confidence: Share = 0.001
    nms: Annotated[float, Field(gt=0, le=1)] | None = None
    multi_label: StrictBool = True
    max_detections: Annotated[StrictInt, Field(ge=1, le=10_000)] = 100
    coordinates: Literal["pixels", "relative"] = "pixels"
    box_format: Literal["cxcywh", "xyxy"] | None = None
    shown: Share = 0.25


class SegmentationOptions(_TaskModel):
    """A class for every pixel.

    Attributes:
        kind: "segmentation".
        output: The output that holds scores or classes of pixels; looked for where there is none.
        channels: Whether classes are the "first" axis of a sample's output, or the "last".
        scores: What a single channel holds: "logits", which a sigmoid makes probabilities, or
            "probabilities".
        threshold: Probability from which a pixel of a single channel is class 1.
        resize: How an output of another size than the mask is resized: "nearest" or "bilinear"; None refuses
            it.
        ignore: Class number of pixels that are not judged.
    """

    kind: Literal["segmentation"] = "segmentation"
    output: OutputName | None = None
    channels: Literal["first", "last"] = "first"
    scores: Literal["logits", "probabilities"] = "logits"
    threshold: Share = 0.5
    resize: Literal["nearest", "bilinear"] | None = None
    ignore: StrictInt = 255


class RegressionOptions(_TaskModel):
    """Numbers.

    Attributes:
        kind: "regression".
        output: The output that holds them; looked for where there is none.
        unit: Unit of the numbers, for tables.
    """

    kind: Literal["regression"] = "regression"
    output: OutputName | None = None
    unit: Annotated[str, Field(max_length=20)] = ""


class EmbeddingOptions(_TaskModel):
    """Vectors whose cosine similarity says how alike two samples are.

    Attributes:
        kind: "embedding".
        output: The output that holds them; looked for where there is none.
        pooling: How vectors of tokens [N, tokens, size] become one: "mean" or "first"; None where the model
            does it.
        mask: Input that says which tokens count in the mean: 1 for those that do.
    """

    kind: Literal["embedding"] = "embedding"
    output: OutputName | None = None
    pooling: Literal["mean", "first"] | None = None
    mask: OutputName | None = None


class TextOptions(_TaskModel):
    """Text recognition: a line of text, read from scores of characters by greedy CTC.

    Attributes:
        kind: "text".
        output: The output that holds scores; looked for where there is none.
        characters: File with a character a line, relative to the data root; None reads them from the model's
            metadata, key ``character``.
        blank: Class number of CTC's blank.
        layout: Axes of the output: "NTC" (samples, steps, characters) or "TNC".
        ignore_case: Whether capitals and small letters are the same.
        ignore_space: Whether blanks are left out before texts are compared.
    """

    kind: Literal["text"] = "text"
    output: OutputName | None = None
    characters: RelativePath | None = None
    blank: ClassNumber = 0
    layout: Literal["NTC", "TNC"] = "NTC"
    ignore_case: StrictBool = False
    ignore_space: StrictBool = False


class CustomOptions(_TaskModel):
    """A figure of the user's own.

    Attributes:
        kind: "custom".
        metric: ``module:function``. It is called with the outputs of all samples, a list of mappings output
            → array as the model gives it for a batch of that sample alone, and their labels; and gives a
            mapping name → number, or a pair of that and a mapping name → one number a sample, whose mean the
            figure is.
        higher_is_better: Direction of all figures, or of each by name.
        unit: Unit of the figures: "share" for shares between 0 and 1, else as in tables.
        resamples: How often the function is called on samples drawn anew, for intervals of figures that are
            no mean; 0 for no such intervals.
    """

    kind: Literal["custom"] = "custom"
    metric: UserFunction
    higher_is_better: StrictBool | dict[str, StrictBool] = True
    unit: Annotated[str, Field(max_length=20)] = "share"
    resamples: Annotated[StrictInt, Field(ge=0, le=10_000)] = 0


def _named(value: Any) -> Any:
    """A plain name stands for a task without options."""
    return {"kind": value} if isinstance(value, str) else value


TaskOptions = Annotated[
    Annotated[
        ClassificationOptions
        | DetectionOptions
        | SegmentationOptions
        | RegressionOptions
        | EmbeddingOptions
        | TextOptions
        | CustomOptions,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_named),
]
"""The task of a recipe: a name, or a mapping with ``kind`` and options."""

TASK_MODELS: Mapping[str, type[BaseModel]] = {
    "classification": ClassificationOptions,
    "detection": DetectionOptions,
    "segmentation": SegmentationOptions,
    "regression": RegressionOptions,
    "embedding": EmbeddingOptions,
    "text": TextOptions,
    "custom": CustomOptions,
}
"""Kind of task → its options."""

_ADAPTER: TypeAdapter[TaskOptions] = TypeAdapter(TaskOptions)


def parse_task(task: str | Mapping[str, Any] | TaskOptions) -> TaskOptions:
    """A task that is stated in Python.

    Args:
        task: A name, a mapping as in recipes, or the options themselves.

    Raises:
        UsageError: It cannot be meant; the first fault is named.

    >>> parse_task({"kind": "classification", "top_k": 3}).top_k
    3
    """
    try:
        return _ADAPTER.validate_python(task)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"task{f' {place}' if place else ''}: {first['msg']}, got {first['input']!r}."
        ) from error
