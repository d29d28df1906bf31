"""A small fixed set of other preparations of the same data: does one of them fit the model better?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calib.data import Array
from calib.data.preprocess import Preprocess
from calib.graph import TensorSpec

__all__ = [
    "InputVariant",
    "PixelScale",
    "channel_axis_of",
    "input_variants",
    "pixel_scale",
]

_MEAN = np.array([0.485, 0.456, 0.406])
_STD = np.array([0.229, 0.224, 0.225])
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class InputVariant:
    """Another preparation of an input.

    Attributes:
        name: What is different, for reports: "with height and width swapped".
        advice: What to set in the recipe.
        change: Makes it of a batch as it is now.
    """

    name: str
    advice: str
    change: Callable[[Array], Array]


@dataclass(frozen=True)
class PixelScale:
    """How grey values from 0 to 255 became what the model gets now: value = grey · factor + shift.

    Attributes:
        factor: Of each channel, or one for all.
        shift: Of each channel, or one for all.
    """

    factor: Array
    shift: Array


def channel_axis_of(spec: TensorSpec, layout: str) -> int | None:
    """Axis of the channels in a batch of images: where the model has 1, 3 or 4, or as the recipe says."""
    if len(spec.shape) != 4:
        return None
    found = [axis for axis in (1, 3) if spec.shape[axis] in _CHANNELS]
    if len(found) == 1:
        return found[0]
    return 1 if layout.startswith("c") else 3


def pixel_scale(steps: Preprocess, images: bool, low: float, high: float) -> PixelScale | None:
    """How grey values became what the model gets, where that is known or can be told.

    Args:
        steps: The preprocessing.
        images: Whether it started from 8-bit images.
        low: The smallest value that the model gets.
        high: The largest.

    Returns:
        For images what the recipe says. For arrays that nothing was done to, 0 to 1 and 0 to 255 are
        recognised by their range. Else None.
    """
    std, mean = np.asarray(steps.std, np.float64), np.asarray(steps.mean, np.float64)
    if images:
        return PixelScale(steps.scale / std, -mean / std)
    undone = (np.asarray([low, high]) * std.max() + mean.min()) / steps.scale
    if std.size > 1 or mean.size > 1 or undone[0] < 0:
        return None
    if 0.5 < undone[1] <= 1.0:
        return PixelScale(steps.scale / (std * 255), -mean / std)
    if 100 < undone[1] <= 255:
        return PixelScale(steps.scale / std, -mean / std)
    return None


def input_variants(
    spec: TensorSpec, shape: Sequence[int], steps: Preprocess, scale: PixelScale | None
) -> list[InputVariant]:
    """The variants that make sense for one input.

    Args:
        spec: The model's input; not a batch of floating-point images: no variants.
        shape: Shape of a batch of it.
        steps: The preprocessing as it is.
        scale: How grey values became what the model gets; None where that is not known.
    """
    axis = channel_axis_of(spec, steps.layout)
    if axis is None or len(shape) != 4 or spec.dtype.kind != "f":
        return []
    return [*_swaps(spec, shape, axis, steps), *_scales(shape[axis], axis, scale, steps)]


def _swaps(spec: TensorSpec, shape: Sequence[int], axis: int, steps: Preprocess) -> list[InputVariant]:
    found = []
    if shape[axis] == 3:
        other = "rgb" if steps.color == "bgr" else "bgr"
        found.append(
            InputVariant(
                "with the channels in reverse order (RGB ↔ BGR)",
                f"preprocess.color: {other}; mean and std stay with their channels",
                lambda batch: np.ascontiguousarray(np.flip(batch, axis)),
            )
        )
    high, wide = (2, 3) if axis == 1 else (1, 2)
    sides = (spec.shape[high], spec.shape[wide])
    free = not any(isinstance(side, int) for side in sides)
    if free or shape[high] == shape[wide]:
        layouts = {"chw": "cwh", "hwc": "whc", "cwh": "chw", "whc": "hwc"}
        found.append(
            InputVariant(
                "with height and width swapped",
                f"preprocess.layout: {layouts[steps.layout]} (for arrays with source.layout: {steps.layout})",
                lambda batch: np.ascontiguousarray(np.swapaxes(batch, high, wide)),
            )
        )
    return found


def _scales(channels: int, axis: int, scale: PixelScale | None, steps: Preprocess) -> list[InputVariant]:
    if scale is None:
        return [_times(255.0, "× 255", "scale × 255"), _times(1 / 255, "÷ 255", "scale: 1/255")]
    factor, shift = _column(scale.factor, axis), _column(scale.shift, axis)
    wanted: dict[str, tuple[Array, Array, str]] = {
        "from 0 to 255": (np.array(1.0), np.array(0.0), "scale: 1, without mean and std"),
        "from 0 to 1": (np.array(1 / 255), np.array(0.0), "scale: 1/255, without mean and std"),
        "from −1 to 1": (np.array(2 / 255), np.array(-1.0), "scale: 1/255, mean: 0.5, std: 0.5"),
    }
    if channels == 3:
        order = slice(None, None, -1 if steps.color == "bgr" else 1)
        mean, std = _MEAN[order], _STD[order]
        advice = f"scale: 1/255, mean: {mean.tolist()}, std: {std.tolist()}"
        wanted["with ImageNet's mean and std"] = (1 / (255 * std), -mean / std, advice)
    found = []
    for name, (new_factor, new_shift, advice) in wanted.items():
        gain = _column(new_factor, axis) / factor
        offset = _column(new_shift, axis) - shift * gain
        # A preparation that differs by less than a hundredth of the range is no other one.
        span = float(np.max(np.abs(factor))) * 255
        if np.all(np.abs(gain - 1) < 0.02) and np.all(np.abs(offset) < 0.02 * span):
            continue
        found.append(
            _linear(f"with values {name}" if name.startswith("from") else name, advice, gain, offset)
        )
    return found


def _times(factor: float, words: str, advice: str) -> InputVariant:
    return _linear(f"with values {words}", f"preprocess.{advice}", np.array(factor), np.array(0.0))


def _linear(name: str, advice: str, gain: Array, offset: Array) -> InputVariant:
    full = advice if advice.startswith("preprocess") else f"preprocess: {{{advice}}}"
    return InputVariant(
        name, full, lambda batch: (batch.astype(np.float64) * gain + offset).astype(batch.dtype)
    )


def _column(numbers: Array, axis: int) -> Array:
    """One number a channel, shaped for a batch."""
    flat = np.asarray(numbers, np.float64)
    if flat.ndim == 0:
        return flat
    shape = [1] * 4
    shape[axis] = flat.size
    return flat.reshape(shape)
