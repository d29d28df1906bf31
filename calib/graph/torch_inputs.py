"""Inputs of a network that is exported: names, shapes, types, sizes that may vary, random values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from calib.data import Array
from calib.errors import UsageError

__all__ = ["DynamicSpec", "InputsSpec", "NetworkInput", "dynamic_inputs", "network_inputs"]

InputsSpec: TypeAlias = "str | Sequence[str] | Mapping[str, Sequence[int] | Array]"
"""``1x3x224x224``, ``ids:2x16:int64``, several of them, or name → shape or example values."""

DynamicSpec: TypeAlias = "str | Sequence[str] | Mapping[str, Mapping[int, str]]"
"""``batch``, ``images:0=batch,2=height``, several of them, or input → axis → name."""

_TYPES = ("float32", "float16", "float64", "bool", "int8", "int16", "int32", "int64", "uint8")
_SHAPE = re.compile(r"\d+(?:x\d+)*")
_SEED = 0


@dataclass(frozen=True)
class NetworkInput:
    """One input.

    Attributes:
        name: Its name in the ONNX model; empty for the name that the network's ``forward`` has.
        shape: Its sizes, batch axis first.
        dtype: Its type.
        values: Example values; None for random ones.
        dynamic: Axis → name, where a size may vary.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("float32"))
    values: Array | None = None
    dynamic: Mapping[int, str] = field(default_factory=dict)

    def example(self, sizes: Mapping[str, int] | None = None) -> Array:
        """Values to run the network on, the same in every call.

        Floats are drawn from the normal distribution with mean 0 and deviation 1, integers are 0 or 1,
        which every vocabulary and every mask has.

        Args:
            sizes: Name of a dynamic axis → size, where it differs from the shape's.
        """
        wanted = {axis: (sizes or {}).get(name, self.shape[axis]) for axis, name in self.dynamic.items()}
        shape = tuple(wanted.get(axis, size) for axis, size in enumerate(self.shape))
        if self.values is not None:
            return _resized(self.values, shape)
        # Every input draws values of its own: two alike would cancel in a difference.
        generator = np.random.default_rng([_SEED, *self.name.encode()])
        if self.dtype.kind == "f":
            return generator.standard_normal(shape).astype(self.dtype)
        return generator.integers(0, 2, shape).astype(self.dtype)


def _resized(values: Array, shape: tuple[int, ...]) -> Array:
    """Values repeated or cut along each axis until they have a shape."""
    for axis, size in enumerate(shape):
        values = np.take(values, np.arange(size) % values.shape[axis], axis=axis)
    return np.ascontiguousarray(values)


def network_inputs(spec: InputsSpec) -> tuple[NetworkInput, ...]:
    """Reads what inputs a network shall be exported with.

    Args:
        spec: Each input as ``[name:]sizes[:type]``, or a mapping from names to shapes (of float32) or to
            arrays of example values.

    Raises:
        UsageError: One cannot be meant, or names repeat.

    >>> [(i.name, i.shape, str(i.dtype)) for i in network_inputs(["1x3x8x8", "ids:2x16:int64"])]
    [('', (1, 3, 8, 8), 'float32'), ('ids', (2, 16), 'int64')]
    """
    if isinstance(spec, Mapping):
        inputs = [_given(name, value) for name, value in spec.items()]
    else:
        inputs = [_parsed(text) for text in ((spec,) if isinstance(spec, str) else spec)]
    if not inputs:
        raise UsageError("The network's inputs are needed, such as --input 1x3x224x224; none was given.")
    names = [item.name for item in inputs if item.name]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(
            f"Input {', '.join(repeated)} is given more than once. Give each input its own name."
        )
    return tuple(inputs)


def _given(name: str, value: Any) -> NetworkInput:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        _check_type(str(value.dtype), name)
        return NetworkInput(name, value.shape, value.dtype, value)
    try:
        shape = tuple(int(size) for size in value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Input {name!r}: expected a shape or an array, got {value!r}.") from error
    return _checked(NetworkInput(name, shape), name)


def _parsed(text: str) -> NetworkInput:
    parts = [part.strip() for part in text.split(":")]
    place = next((at for at, part in enumerate(parts[:2]) if _SHAPE.fullmatch(part)), None)
    if place is None or len(parts) - place > 2:
        raise UsageError(
            f"--input {text!r}: expected [name:]sizes[:type], such as 1x3x224x224, images:1x3x224x224 or "
            "ids:2x16:int64."
        )
    kind = parts[place + 1] if len(parts) > place + 1 else "float32"
    _check_type(kind, text)
    shape = tuple(map(int, parts[place].split("x")))
    return _checked(NetworkInput(parts[0] if place else "", shape, np.dtype(kind)), text)


def _check_type(kind: str, text: str) -> None:
    if kind not in _TYPES:
        raise UsageError(f"--input {text!r}: type {kind!r} is unknown. Choose from {', '.join(_TYPES)}.")


def _checked(item: NetworkInput, text: str) -> NetworkInput:
    if not item.shape or min(item.shape) < 1:
        raise UsageError(f"--input {text!r}: every size must be at least 1, got {list(item.shape)}.")
    return item


def dynamic_inputs(inputs: Sequence[NetworkInput], spec: DynamicSpec | None) -> tuple[NetworkInput, ...]:
    """Says which sizes may vary.

    Args:
        inputs: The inputs, all with names.
        spec: ``batch`` (or another name) makes the first axis of every input vary;
            ``images:0=batch,2=height`` names axes of one input. None leaves every size fixed.

    Raises:
        UsageError: An input or axis does not exist, or a name cannot be one.

    >>> found = dynamic_inputs([NetworkInput("images", (1, 3, 8, 8))], "images:0=batch,2=height")
    >>> found[0].dynamic
    {0: 'batch', 2: 'height'}
    """
    wanted: dict[str, dict[int, str]] = {item.name: {} for item in inputs}
    if isinstance(spec, Mapping):
        pairs = [(name, dict(axes)) for name, axes in spec.items()]
    else:
        texts = () if spec is None else (spec,) if isinstance(spec, str) else tuple(spec)
        pairs = [pair for text in texts for pair in _axes(text, inputs)]
    for name, axes in pairs:
        if name not in wanted:
            raise UsageError(f"--dynamic names input {name!r}; the inputs are {', '.join(wanted)}.")
        wanted[name].update(axes)
    return tuple(_with_axes(item, wanted[item.name]) for item in inputs)


def _axes(text: str, inputs: Sequence[NetworkInput]) -> list[tuple[str, dict[int, str]]]:
    name, colon, listed = text.partition(":")
    if not colon:
        return [(item.name, {0: text}) for item in inputs]
    axes: dict[int, str] = {}
    for entry in listed.split(","):
        axis, equals, label = entry.partition("=")
        if not equals or not axis.strip().isdecimal():
            raise UsageError(
                f"--dynamic {text!r}: expected a name for every input's first axis, such as batch, or "
                "input:axis=name,axis=name, such as images:0=batch,2=height."
            )
        axes[int(axis)] = label.strip()
    return [(name.strip(), axes)]


def _with_axes(item: NetworkInput, axes: Mapping[int, str]) -> NetworkInput:
    for axis, label in axes.items():
        if not 0 <= axis < len(item.shape):
            raise UsageError(
                f"--dynamic {item.name}:{axis}={label}: {item.name} has axes 0 to {len(item.shape) - 1}."
            )
        if not label.isidentifier():
            raise UsageError(
                f"--dynamic: {label!r} cannot be the name of a size. Use letters, such as batch."
            )
    return replace(item, dynamic=dict(sorted(axes.items())))
