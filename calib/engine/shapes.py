"""Shapes that an engine shall take: from the command line or Python to TensorRT's optimization profile.

TensorRT builds for a range of each dynamic axis, and tunes for one size in it. A text names an input and
its shape, or its smallest, most usual and largest: ``image:1x3x224x224:8x3x224x224:32x3x224x224``. Of an
input that holds sizes of other tensors (a shape tensor) these are its values, as trtexec takes them:
``size:112x112:224x224:448x448``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, TypeAlias

from calib.errors import UsageError
from calib.graph import OnnxModel, TensorSpec
from calib.wording import counted

__all__ = ["DEFAULT_BATCHES", "InputRange", "ShapesLike", "resolve_shapes", "shapes_of_feeds"]

DEFAULT_BATCHES = (1, 8, 32)
"""Smallest, usual and largest batch where the batch alone is dynamic and no shapes are given."""

Shape: TypeAlias = tuple[int, ...]
ShapesLike: TypeAlias = Sequence[str] | Mapping[str, Sequence[int] | Sequence[Sequence[int]]]

_SHAPE = r"\d+(?:x\d+)*"
_SHAPES = re.compile(rf"{_SHAPE}(?::{_SHAPE}:{_SHAPE})?")
_EXAMPLE = "NAME:1x3x224x224, or NAME:1x3x224x224:8x3x224x224:32x3x224x224 (smallest, usual, largest)"


@dataclass(frozen=True)
class InputRange:
    """The shapes of one input.

    Attributes:
        name: The input.
        smallest: Smallest size of each axis.
        usual: The sizes that TensorRT tunes for.
        largest: Largest size of each axis.
        values: Whether the numbers can be the input's values: they were given, and it holds so many integers.
    """

    name: str
    smallest: Shape
    usual: Shape
    largest: Shape
    values: bool = False

    @property
    def fixed(self) -> bool:
        """Whether there is one shape only."""
        return self.smallest == self.usual == self.largest

    def __str__(self) -> str:
        shapes = (self.usual,) if self.fixed else (self.smallest, self.usual, self.largest)
        return ":".join((self.name, *("x".join(map(str, shape)) for shape in shapes)))


def resolve_shapes(model: OnnxModel, shapes: ShapesLike = ()) -> tuple[tuple[InputRange, ...], list[str]]:
    """The range of every input's shape.

    Args:
        model: The model.
        shapes: Texts as above, or input → shape, or input → (smallest, usual, largest). Inputs that are left
            out keep the shape that the model has; where the batch alone is dynamic it takes
            ``DEFAULT_BATCHES``, or the batches of the inputs that are given.

    Returns:
        A range for each input, in the model's order, and notes on what was chosen.

    Raises:
        UsageError: A shape cannot be meant, or a dynamic axis other than the batch has no size.
    """
    given = _read(model, shapes)
    missing = [spec for spec in model.inputs if spec.name not in given]
    batches, notes = _batches(given, missing)
    for spec in missing:
        given[spec.name] = _complete(spec, batches, model)
    return tuple(given[spec.name] for spec in model.inputs), notes


def shapes_of_feeds(feeds: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes of one batch of data, as ``resolve_shapes`` takes them.

    Args:
        feeds: Input → array.

    >>> import numpy as np
    >>> shapes_of_feeds({"x": np.zeros((4, 3))})
    {'x': (4, 3)}
    """
    return {name: tuple(int(size) for size in array.shape) for name, array in feeds.items()}


def _read(model: OnnxModel, shapes: ShapesLike) -> dict[str, InputRange]:
    specs = {spec.name: spec for spec in model.inputs}
    pairs = (
        [(name, _triple(name, value)) for name, value in shapes.items()]
        if isinstance(shapes, Mapping)
        else [_parse(text, specs) for text in shapes]
    )
    found: dict[str, InputRange] = {}
    for name, triple in pairs:
        if name not in specs:
            raise UsageError(f"--shapes names {name!r}, which is no input. Inputs: {_listed(model)}.")
        if name in found:
            raise UsageError(f"--shapes gives input {name!r} twice.")
        found[name] = _checked(InputRange(name, *triple), specs[name])
    return found


def _parse(text: str, specs: Mapping[str, TensorSpec]) -> tuple[str, tuple[Shape, Shape, Shape]]:
    # An input's name may hold colons, and end like a shape: "image:0".
    name = max((name for name in specs if text.startswith(f"{name}:")), key=len, default=None)
    if name is None and len(specs) == 1 and _SHAPES.fullmatch(text):
        name, rest = next(iter(specs)), text
    elif name is None:
        head = text.partition(":")[0]
        raise UsageError(
            f"--shapes {text!r}: {head!r} is no input. Inputs: {', '.join(specs)}. Expected {_EXAMPLE}."
        )
    else:
        rest = text[len(name) + 1 :]
    if not _SHAPES.fullmatch(rest):
        raise UsageError(f"--shapes {text!r}: {rest!r} is neither one shape nor three. Expected {_EXAMPLE}.")
    parts = [tuple(int(size) for size in part.split("x")) for part in rest.split(":")]
    smallest, usual, largest = parts * 3 if len(parts) == 1 else parts
    return name, (smallest, usual, largest)


def _triple(name: str, value: Sequence[int] | Sequence[Sequence[int]]) -> tuple[Shape, Shape, Shape]:
    entries: Sequence[Any] = value
    try:
        # Sizes that were computed may be numpy's integers.
        if not any(isinstance(entry, Iterable) for entry in entries):
            shape: Shape = tuple(map(index, entries))
            return shape, shape, shape
        parts = [tuple(map(index, entry)) for entry in entries]
    except TypeError:
        parts = []
    if len(parts) != 3:
        raise UsageError(
            f"shapes of {name!r} must be one shape or (smallest, usual, largest), got {value!r}."
        )
    return parts[0], parts[1], parts[2]


def _checked(range_: InputRange, spec: TensorSpec) -> InputRange:
    """The range, if it can be meant; whether an input holds sizes only the parsed network tells."""
    if not _may_be_values(range_, spec):
        _check_shape(range_, spec)
        return range_
    for axis, sizes in enumerate(zip(range_.smallest, range_.usual, range_.largest, strict=True)):
        if not 0 <= sizes[0] <= sizes[1] <= sizes[2]:
            raise UsageError(
                f"--shapes {range_}: of value {axis} expected 0 ≤ smallest ≤ usual ≤ largest, "
                f"got {sizes[0]}, {sizes[1]}, {sizes[2]}."
            )
    return replace(range_, values=True)


def _may_be_values(range_: InputRange, spec: TensorSpec) -> bool:
    """Whether an input is a list of as many integers as numbers were given."""
    if spec.dtype.kind not in "iu" or len(spec.shape) > 1 or not all(isinstance(n, int) for n in spec.shape):
        return False
    count = spec.shape[0] if spec.shape else 1
    return all(len(shape) == count for shape in (range_.smallest, range_.usual, range_.largest))


def _check_shape(range_: InputRange, spec: TensorSpec) -> None:
    for shape in (range_.smallest, range_.usual, range_.largest):
        if len(shape) != len(spec.shape):
            raise UsageError(
                f"--shapes {range_}: input {spec.name!r} has {counted(len(spec.shape), 'ax[is|es]')} "
                f"({spec}), "
                f"but {'x'.join(map(str, shape))} has {len(shape)}."
            )
    for axis, sizes in enumerate(zip(range_.smallest, range_.usual, range_.largest, strict=True)):
        fixed = spec.shape[axis]
        if isinstance(fixed, int) and any(size != fixed for size in sizes):
            raise UsageError(f"--shapes {range_}: axis {axis} of {spec.name!r} is fixed at {fixed} ({spec}).")
        if not 1 <= sizes[0] <= sizes[1] <= sizes[2]:
            raise UsageError(
                f"--shapes {range_}: on axis {axis} expected 1 ≤ smallest ≤ usual ≤ largest, "
                f"got {sizes[0]}, {sizes[1]}, {sizes[2]}."
            )


def _batches(
    given: Mapping[str, InputRange], missing: Sequence[TensorSpec]
) -> tuple[tuple[int, int, int], list[str]]:
    """Batches of the inputs that no shapes are given for: those of the others, or the default."""
    if not any(spec.shape and not isinstance(spec.shape[0], int) for spec in missing):
        return DEFAULT_BATCHES, []
    ranges = {(r.smallest[0], r.usual[0], r.largest[0]) for r in given.values() if r.usual}
    if len(ranges) == 1:
        return ranges.pop(), []
    smallest, usual, largest = DEFAULT_BATCHES
    return DEFAULT_BATCHES, [
        f"the batch is dynamic: built for batches of {smallest} to {largest}, tuned for {usual}; "
        "--shapes chooses others"
    ]


def _complete(spec: TensorSpec, batches: tuple[int, int, int], model: OnnxModel) -> InputRange:
    sizes: list[tuple[int, int, int]] = []
    for axis, size in enumerate(spec.shape):
        if isinstance(size, int):
            sizes.append((size, size, size))
        elif axis == 0:
            sizes.append(batches)
        else:
            raise UsageError(
                f"Input {spec.name!r} of {model.path} is {spec}: more than its batch is dynamic, so its "
                f"shapes must be given. Pass --shapes {_suggest(spec)} with sizes for ?, or three such "
                "shapes, smallest:usual:largest."
            )
    smallest, usual, largest = zip(*sizes, strict=True) if sizes else ((), (), ())
    return InputRange(spec.name, smallest, usual, largest)


def _suggest(spec: TensorSpec) -> str:
    return f"{spec.name}:{'x'.join(str(size) if isinstance(size, int) else '?' for size in spec.shape)}"


def _listed(model: OnnxModel) -> str:
    return ", ".join(f"{spec.name} {spec}" for spec in model.inputs)
