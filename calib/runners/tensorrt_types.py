"""The inputs and outputs of an engine, by name: types, shapes and what its optimization profile allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calib.errors import EngineError, ValidationError

if TYPE_CHECKING:
    from calib.data import Array
    from calib.engine.api import Api

__all__ = [
    "Bounds",
    "TensorSpec",
    "check_names",
    "check_shape",
    "check_values",
    "read_specs",
    "size_text",
    "usual_feeds",
]

# trt.nptype has no INT64 in TensorRT 8, and numpy no type for BF16 and FP8.
_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}

_PROFILE = 0


class Bounds(NamedTuple):
    """Smallest, best and largest shape, or values of a shape tensor, of an optimization profile."""

    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]

    def hold_first(self, values: Sequence[int]) -> bool:
        """The same for as many of the first numbers as the bounds are of.

        >>> Bounds((1,), (3,), (12,)).hold_first((3, 99)), Bounds((1,), (3,), (12,)).hold_first((13, 1))
        (True, False)
        """
        return self.hold(values[: len(self.minimum)])

    def hold(self, values: Sequence[int]) -> bool:
        """Whether every number lies between its smallest and its largest.

        >>> Bounds((1, 3), (8, 3), (32, 3)).hold((33, 3))
        False
        """
        return len(values) == len(self.minimum) and all(
            low <= value <= high for low, value, high in zip(self.minimum, values, self.maximum, strict=True)
        )


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of an engine.

    Attributes:
        name: Its name.
        is_input: Whether it is an input.
        dtype: Its type in memory.
        shape: Its shape; -1 where a size is dynamic.
        on_host: Whether TensorRT reads or writes it in host memory: a shape tensor.
        shapes: Shapes that the profile allows; None for outputs and shape tensors.
        values: Values that the profile allows a shape tensor, or the first of them alone, which is all that
            TensorRT 8.6.0 tells; None elsewhere, or where unknown.
    """

    name: str
    is_input: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    on_host: bool
    shapes: Bounds | None = None
    values: Bounds | None = None

    @property
    def dynamic(self) -> bool:
        """Whether a size is only known when shapes are set."""
        return -1 in self.shape

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of a tensor of this type and of a shape that is known."""
        return math.prod(shape) * self.dtype.itemsize


def read_specs(api: Api, engine: Any) -> tuple[TensorSpec, ...]:
    """Asks an engine for its inputs and outputs, in its own order.

    Args:
        api: TensorRT.
        engine: A ``trt.ICudaEngine``.

    Raises:
        EngineError: A tensor is of a type or a memory layout that numpy does not have.
    """
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return tuple(_read(api.trt, engine, name) for name in names)


def _read(trt: Any, engine: Any, name: str) -> TensorSpec:
    is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
    on_host = bool(
        engine.is_shape_inference_io(name) or engine.get_tensor_location(name) == trt.TensorLocation.HOST
    )
    _check_layout(trt, engine, name)
    return TensorSpec(
        name=name,
        is_input=is_input,
        dtype=_dtype(engine.get_tensor_dtype(name), name),
        shape=tuple(int(size) for size in engine.get_tensor_shape(name)),
        on_host=on_host,
        shapes=None if on_host or not is_input else _bounds(engine.get_tensor_profile_shape(name, _PROFILE)),
        values=_value_bounds(engine, name) if on_host and is_input else None,
    )


def _dtype(kind: Any, name: str) -> np.dtype[Any]:
    if kind.name not in _TYPES:
        raise EngineError(
            f"{name!r} is a tensor of TensorRT's type {kind.name}, which numpy does not have. Inputs and "
            f"outputs must be {', '.join(_TYPES)}: add a Cast to the model in front of it or behind it."
        )
    return np.dtype(_TYPES[kind.name])


def _check_layout(trt: Any, engine: Any, name: str) -> None:
    if engine.get_tensor_format(name) != trt.TensorFormat.LINEAR:
        raise EngineError(
            f"{name!r} has the memory layout {engine.get_tensor_format_desc(name)!r}; expected row major "
            "linear. Build the engine without --inputIOFormats and --outputIOFormats, or with :chw in them."
        )


def _value_bounds(engine: Any, name: str) -> Bounds | None:
    # TensorRT 10 renamed it; its keyword arguments are swapped there, so neither is called by keyword.
    if hasattr(engine, "get_tensor_profile_values"):
        return _bounds(engine.get_tensor_profile_values(_PROFILE, name))
    return _bounds(engine.get_profile_shape_input(_PROFILE, name))


def _bounds(found: Sequence[Iterable[int]]) -> Bounds | None:
    """Three shapes, or nothing where the profile does not say."""
    if len(found) != 3:
        return None
    return Bounds(*(tuple(int(size) for size in part) for part in found))


def check_names(feeds: Mapping[str, Array], inputs: Iterable[str], who: str) -> None:
    """Refuses feeds that are not one array for each input.

    Raises:
        ValidationError: One is missing, or unknown.
    """
    names = sorted(inputs)
    if sorted(feeds) != names:
        raise ValidationError(
            f"The {who} has inputs {names}, the feeds are {sorted(feeds)}. Give one array for each input."
        )


def check_shape(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Refuses a shape that the engine was not built for.

    Args:
        spec: The input.
        shape: The shape of what is fed.

    Raises:
        ValidationError: The message names the input, what came, what the profile allows, and what to do.
    """
    if len(shape) != len(spec.shape) or any(
        declared not in (-1, size) for declared, size in zip(spec.shape, shape, strict=True)
    ):
        raise ValidationError(
            f"Input {spec.name!r} of the engine has the shape {size_text(spec.shape)}"
            f"{' (-1 is dynamic)' if spec.dynamic else ''}, got {size_text(shape)}. "
            "Feed that shape, or build the engine from a model with other sizes."
        )
    if spec.shapes is not None and not spec.shapes.hold(shape):
        raise ValidationError(
            f"Input {spec.name!r}: the engine's optimization profile holds {size_text(spec.shapes.minimum)} "
            f"to {size_text(spec.shapes.maximum)}, got {size_text(shape)}. Feed a shape within it, or build "
            f"the engine again with --shapes {_wider(spec, shape)}"
        )


def check_values(spec: TensorSpec, array: Array) -> None:
    """Refuses values of a shape tensor that the engine was not built for.

    Raises:
        ValidationError: The message names the tensor, what came and what the profile allows.
    """
    values = tuple(int(value) for value in array.ravel())
    # Values beyond the profile make TensorRT 8.6.0 crash where it infers shapes.
    if spec.values is not None and not spec.values.hold_first(values):
        raise ValidationError(
            f"Input {spec.name!r} holds sizes: the engine's optimization profile allows "
            f"{list(spec.values.minimum)} to {list(spec.values.maximum)}, got {list(values)}. "
            "Feed values within it, or build the engine again with --shapes "
            f"{spec.name}:SMALLEST:USUAL:LARGEST, three lists of values such as 1x1:3x4:12x12."
        )


def usual_feeds(specs: Iterable[TensorSpec]) -> dict[str, Array]:
    """A batch of the shapes that an engine was tuned for, to time it without data.

    Floats are noise, since zeros take less power; integers are 0, which every table of indices has; what is
    true or false is true. Shape tensors hold the sizes that were tuned for.

    Args:
        specs: The engine's tensors.

    Raises:
        EngineError: The engine does not tell an input's usual shape, or a shape tensor's usual values.
    """
    random = np.random.default_rng(0)
    return {spec.name: _usual(spec, random) for spec in specs if spec.is_input}


def _usual(spec: TensorSpec, random: np.random.Generator) -> Array:
    shape = spec.shape if spec.shapes is None else spec.shapes.optimum
    if -1 in shape or (
        spec.on_host and (spec.values is None or len(spec.values.optimum) != math.prod(shape))
    ):
        raise EngineError(
            f"The engine does not tell what its input {spec.name!r} usually is. Time it with data: calib "
            "validate --runner tensorrt, or TensorRTRunner.profile in Python."
        )
    if spec.on_host and spec.values is not None:
        return np.array(spec.values.optimum, spec.dtype).reshape(shape)
    if spec.dtype.kind == "f":
        return random.standard_normal(shape, np.float32).astype(spec.dtype)
    return np.full(shape, spec.dtype.kind == "b", spec.dtype)


def _wider(spec: TensorSpec, shape: tuple[int, ...]) -> str:
    """The profile that would hold the shape too, as --shapes takes it."""
    low, best, high = spec.shapes or Bounds(shape, shape, shape)
    parts = (
        tuple(map(min, low, shape)),
        best,
        tuple(map(max, high, shape)),
    )
    return ":".join((spec.name, *map(size_text, parts)))


def size_text(shape: Sequence[int]) -> str:
    """A shape as options write it.

    >>> size_text((8, 3, 224, 224)), size_text(())
    ('8x3x224x224', 'scalar')
    """
    return "x".join(str(size) for size in shape) or "scalar"
