"""The one preprocessing, for calibration and validation alike.

Steps, in this order: resize, crop, color, ×scale, -mean, ÷std, layout, dtype. The first three are for
images only. Arithmetic is done in double precision and rounded once, to the final dtype.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from calib.data.dataset import Array
from calib.errors import DatasetError

__all__ = ["Layout", "Preprocess", "cast"]

Layout = Literal["chw", "hwc"]

# The rules of calib.data.pixels. Whoever changes them there changes them here.
_READING = {
    "decoder": "Pillow",
    "orientation": "turned upright by EXIF",
    "pixels": "8-bit RGB, transparency dropped",
    "resizer": "torchvision.transforms.v2 on 8-bit tensors",
}

_IMAGES_ONLY = ("resize", "interpolation", "antialias", "crop", "color")


def _number(value: object) -> float:
    """A finite number, or one written as text: ``1/255``, or ``1e-3`` (text to a YAML reader)."""
    try:
        if isinstance(value, str):
            over, _, under = value.partition("/")
            value = float(over) / float(under or 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, ArithmeticError):
        raise ValueError(f'expected a number or a fraction such as "1/255", got {value!r}') from None
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {value!r}")
    return number


def _nonzero(value: object) -> float:
    number = _number(value)
    if number == 0:
        raise ValueError("must not be 0")
    return number


def _per_channel(value: object) -> float | tuple[float, ...]:
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError("expected a number, or a list with one number a channel, got []")
        return tuple(_number(item) for item in value)
    return _number(value)


def _divisor(value: object) -> float | tuple[float, ...]:
    number = _per_channel(value)
    if 0 in (number if isinstance(number, tuple) else (number,)):
        raise ValueError("must not be 0: values are divided by it")
    return number


def _size(value: object) -> int | tuple[int, int]:
    sides = value if isinstance(value, (list, tuple)) else (value, value)
    whole = all(isinstance(side, int) and not isinstance(side, bool) for side in sides)
    if len(sides) != 2 or not whole or not all(1 <= side <= 16384 for side in sides):
        raise ValueError(f"expected pixels from 1 to 16384, or [height, width], got {value!r}")
    return (sides[0], sides[1]) if isinstance(value, (list, tuple)) else sides[0]


class Preprocess(BaseModel):
    """What is done to each sample before a model sees it.

    Attributes:
        resize: Pixels of the short side, the other one in proportion; or (height, width).
        interpolation: Kernel of the resize; ``nearest`` takes the pixel with the nearest centre.
        antialias: Whether the kernel is widened when an image is made smaller.
        crop: Side of the square, or (height, width), cut from the centre.
        color: Order of the channels; ``gray`` is one channel, 0.2989 R + 0.587 G + 0.114 B.
        scale: Values are multiplied by it.
        mean: Subtracted after that; one number, or one a channel.
        std: Divided by after that; one number, or one a channel.
        layout: Order of the axes that the model gets: channels first or last.
        dtype: Type that the model gets. If omitted: float32, but whole numbers of an arrays source
            that scale, mean and std do not touch stay as they are stored.
        inputs: Model inputs that this applies to; all if omitted. For arrays only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    resize: Annotated[int | tuple[int, int], BeforeValidator(_size)] | None = None
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear"
    antialias: StrictBool = True
    crop: Annotated[int | tuple[int, int], BeforeValidator(_size)] | None = None
    color: Literal["rgb", "bgr", "gray"] = "rgb"
    scale: Annotated[float, BeforeValidator(_nonzero)] = 1.0
    mean: Annotated[float | tuple[float, ...], BeforeValidator(_per_channel)] = 0.0
    std: Annotated[float | tuple[float, ...], BeforeValidator(_divisor)] = 1.0
    layout: Layout = "chw"
    dtype: Literal["float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64"] | None = None
    inputs: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    def images_only(self) -> tuple[str, ...]:
        """The keys that were given and have a meaning for images alone."""
        return tuple(key for key in _IMAGES_ONLY if key in self.model_fields_set)

    def record(self, *, images: bool = True) -> dict[str, Any]:
        """Every step with its value, for provenance and reports.

        Args:
            images: Whether the steps that are for images only are part of it, and how images are read.
        """
        if images:
            return {**_READING, **self.model_dump(mode="json", exclude_none=True)}
        return self.model_dump(mode="json", exclude_none=True, exclude=set(_IMAGES_ONLY))

    def changes_values(self) -> bool:
        """Whether scale, mean or std do anything."""
        return (self.scale, self.mean, self.std) != (1.0, 0.0, 1.0)

    def apply(self, values: Array, origin: str, stored: Layout | None = None) -> Array:
        """Does ×scale, -mean, ÷std, layout and dtype on one sample.

        Args:
            values: One input of one sample, without a batch axis.
            origin: Where the sample came from, for messages.
            stored: Order of its axes; None if it is that of ``layout`` already.

        Returns:
            The array for the model.

        Raises:
            DatasetError: As many channels as numbers are not there, axes cannot be reordered, or
                values do not fit ``dtype``.

        >>> Preprocess(scale="1/2", mean=1).apply(np.array([2, 6], np.uint8), "a.npy")
        array([0., 2.], dtype=float32)
        """
        layout = stored or self.layout
        result = values
        if self.changes_values():
            mean = _along(self.mean, values, layout, f"{origin}: preprocess.mean")
            std = _along(self.std, values, layout, f"{origin}: preprocess.std")
            result = (values.astype(np.float64) * self.scale - mean) / std
        if layout != self.layout:
            result = _reorder(result, self.layout, origin)
        return np.ascontiguousarray(cast(result, self.target(values.dtype), origin)).reshape(result.shape)

    def target(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """The type that values stored as another type get."""
        if self.dtype is not None:
            return np.dtype(self.dtype)
        if stored.kind in "biu" and not self.changes_values():
            native: np.dtype[Any] = stored.newbyteorder("=")
            return native
        return np.dtype(np.float32)


def _along(numbers: float | tuple[float, ...], values: Array, layout: Layout, what: str) -> float | Array:
    """One number a channel, shaped so that it broadcasts along the channel axis."""
    if isinstance(numbers, float):
        return numbers
    axis = 0 if layout == "chw" else values.ndim - 1
    channels = values.shape[axis] if values.ndim else 0
    if channels != len(numbers):
        raise DatasetError(
            f"{what} has {len(numbers)} numbers, but the sample of shape {values.shape} has "
            f"{channels} channels (layout {layout}). Give one number, or one for each channel."
        )
    shape = [1] * values.ndim
    shape[axis] = channels
    column: Array = np.asarray(numbers, np.float64).reshape(shape)
    return column


def _reorder(values: Array, layout: Layout, origin: str) -> Array:
    if values.ndim != 3:
        raise DatasetError(
            f"{origin}: shape {values.shape} cannot be brought to layout {layout}: expected three axes. "
            "Leave out the source's layout."
        )
    axes = (1, 2, 0) if layout == "hwc" else (2, 0, 1)
    reordered: Array = values.transpose(axes)
    return reordered


def cast(values: Array, dtype: np.dtype[Any], origin: str) -> Array:
    """Changes the type of an array if that keeps its values.

    Rounding to fewer digits of a floating-point type keeps them; losing a fraction or leaving the
    range of the type does not. NaN and infinity pass from one floating-point type to another.

    Args:
        values: Numbers of any shape.
        dtype: The type wanted.
        origin: Where the values came from, for the message.

    Raises:
        DatasetError: A value does not fit; the message gives it and its place.

    >>> cast(np.array([1.0, -3.0]), np.dtype("int8"), "a.npy")
    array([ 1, -3], dtype=int8)
    """
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype)
    whole = dtype.kind in "iu"
    lost = _lost_whole(values, dtype) if whole else np.isinf(result) & np.isfinite(values)
    if lost.any():
        raise _lossy(values, lost, dtype, origin)
    return result


def _lost_whole(values: Array, dtype: np.dtype[Any]) -> Array:
    info = np.iinfo(dtype)
    if values.dtype.kind != "f":
        low, high = max(info.min, _lowest(values.dtype)), min(info.max, _highest(values.dtype))
        return np.asarray((values < low) | (values > high))
    # In double precision: float16 has no 65536. The upper end is max + 1, since 2**63 - 1 is no double.
    exact = values.astype(np.float64)
    inside = (exact >= float(info.min)) & (exact < float(info.max + 1))
    return np.asarray(~inside | (np.trunc(exact) != exact))


def _lowest(dtype: np.dtype[Any]) -> int:
    return 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)


def _highest(dtype: np.dtype[Any]) -> int:
    return 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)


def _lossy(values: Array, lost: Array, dtype: np.dtype[Any], origin: str) -> DatasetError:
    place = tuple(int(index[0]) for index in np.nonzero(np.atleast_1d(lost)))
    value = np.atleast_1d(values)[place]
    return DatasetError(
        f"{origin}: value {value} at index {place} does not fit {dtype} "
        f"({int(lost.sum())} such values). Choose another preprocess.dtype, or a scale and mean that fit."
    )
