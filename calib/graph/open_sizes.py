"""Inputs whose sizes a model leaves open: what they were, or who has to say them.

TensorRT calibrates at one size, which a model with a dynamic height and width does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from calib.data import Batch
from calib.errors import MixedShapesError
from calib.graph.intake import OnnxModel, TensorSpec

__all__ = ["SizesSeen", "asking_for_a_size", "open_axes"]


def open_axes(spec: TensorSpec) -> tuple[int, ...]:
    """The axes of an input whose size is not fixed, but for the first, which is the batch.

    >>> import numpy as np
    >>> open_axes(TensorSpec("x", np.dtype(np.float32), ("n", 3, "height", None)))
    (2, 3)
    """
    return tuple(axis for axis, size in enumerate(spec.shape) if axis and not isinstance(size, int))


class SizesSeen:
    """Shapes that samples had, of inputs with axes beyond the batch that are open.

    Args:
        inputs: The model's inputs.
    """

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        self._open = {spec.name: spec for spec in inputs if open_axes(spec)}
        self._seen: dict[str, dict[tuple[int, ...], None]] = {}

    def add(self, name: str, shape: tuple[int, ...]) -> None:
        """Keeps the shape of a batch of an input."""
        if name in self._open:
            self._seen.setdefault(name, {})[shape[1:]] = None

    @property
    def notes(self) -> Iterator[str]:
        """Of each such input, which shapes there were."""
        for name, shapes in self._seen.items():
            if len(shapes) == 1:
                were = f"all samples were {_text(*shapes)}"
            else:
                first, *_, last = sorted(shapes)
                were = f"samples had {len(shapes)} shapes, {_text(first)} to {_text(last)}"
            yield f"input {name!r} leaves {_axes(self._open[name])} open: {were}"


def asking_for_a_size(batches: Iterable[Batch], model: OnnxModel) -> Iterator[Batch]:
    """Passes batches on, and says where a size is given if samples of one batch have several.

    Args:
        batches: The batches.
        model: The model that they are for.

    Raises:
        MixedShapesError: With the input, its open axes, and what gives them a size.
    """
    try:
        yield from batches
    except MixedShapesError as error:
        asking = [spec for spec in model.inputs if open_axes(spec)]
        if not asking:
            raise
        named = "; ".join(f"input {spec.name!r} ({spec}) leaves {_axes(spec)} open" for spec in asking)
        raise MixedShapesError(
            f"{error} {model.path} tells no size: {named}. Give one in the recipe, such as "
            "preprocess: {resize: 256, crop: 224}, or pass --batch-size 1 to calibrate at every size."
        ) from error


def _axes(spec: TensorSpec) -> str:
    axes = (f"{axis} ({spec.shape[axis]})" if spec.shape[axis] else str(axis) for axis in open_axes(spec))
    return f"axes {', '.join(axes)}"


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
