"""The one preprocessing, for calibration and validation alike.

Steps, always in this order, whatever the order in the recipe: resize, crop, pad (or letterbox, which is
both a resize and a pad), color, ×scale, -mean, ÷std, layout, dtype. Those up to color are for images only.
Arithmetic is done in double precision and rounded once, to the final dtype.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator
from typing_extensions import Self

from calib.data.dataset import Array
from calib.data.preprocess_values import Divisor, Fill, Fraction, Nonzero, PerChannel, Pixels, Size, pair
from calib.errors import DatasetError
from calib.wording import counted

__all__ = ["Fit", "Interpolation", "Layout", "Letterbox", "Pad", "Preprocess", "cast", "reorder"]

Layout = Literal["chw", "hwc", "cwh", "whc"]
Fit = Literal["stretch", "short_side", "long_side", "height"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Place = Literal["corner", "center"]

# The rules of calib.data.pixels. Whoever changes them there changes them here.
_READING = {
    "decoder": "Pillow",
    "orientation": "turned upright by EXIF",
    "pixels": "8-bit RGB, transparency dropped",
}
_RESIZERS = {
    True: "Pillow",
    False: "torch in float32, rounded to 8 bits, by torchvision.transforms.v2",
}

_ALWAYS_SMOOTH = ("lanczos", "box", "hamming")
_IMAGES_ONLY = (
    *("resize", "fit", "interpolation", "antialias", "crop", "crop_fraction"),
    *("pad", "letterbox", "color"),
)


class Pad(BaseModel):
    """Adds pixels until an image has a size.

    Attributes:
        size: Side of the square, or (height, width), that comes out. A larger image is an error.
        multiple: Instead: each side is brought to the next multiple of it.
        value: Of the added pixels: a grey value from 0 to 255, (red, green, blue), or ``mean``: what is
            exactly 0 for the model, after scale, mean and std.
        place: Where the image lies: ``corner`` is the upper left one; ``center`` shares the pixels out,
            an odd one to the right and the bottom.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Size | None = None
    multiple: Pixels | None = None
    value: Fill = 0
    place: Place = "corner"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.size is None) == (self.multiple is None):
            raise ValueError("expected size or multiple, one of them")
        return self


class Letterbox(BaseModel):
    """Fits an image into a size, in proportion, and fills the rest.

    Each side is multiplied by the smaller of the two ratios and rounded, as YOLO's letterbox does.

    Attributes:
        size: Side of the square, or (height, width), that it is fitted into.
        value: Of the rest: a grey value from 0 to 255, (red, green, blue), or ``mean``.
        place: Where the image lies: ``center``, or ``corner`` for the upper left one.
        multiple: Fill only up to the next multiple of it, not up to the size: images then differ in
            size, and go to the model one by one.
        enlarge: Whether a smaller image is made larger.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Size
    value: Fill = 114
    place: Place = "center"
    multiple: Pixels | None = None
    enlarge: StrictBool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.multiple and any(side % self.multiple for side in pair(self.size)):
            raise ValueError(f"size must be a multiple of {self.multiple}, got {self.size}")
        return self


class Preprocess(BaseModel):
    """What is done to each sample before a model sees it.

    Attributes:
        resize: Pixels of a side, or (height, width); ``fit`` says what is made of them.
        fit: ``stretch``: to exactly that size. ``short_side``: in proportion, the short side as long as
            given; with (height, width) so that both are covered. ``long_side``: in proportion, the long
            side as long as given; with (height, width) so that it lies inside both. ``height``: that
            height and the width in proportion, rounded up, at most the given width, as PP-OCR's text
            recognition does. If omitted: short_side for a number, stretch for (height, width).
        interpolation: Kernel of the resize; ``nearest`` takes the pixel with the nearest centre; ``box``
            is the mean of an area (OpenCV's INTER_AREA where sizes divide).
        antialias: Whether the kernel is widened when an image is made smaller, as Pillow does. OpenCV's
            linear and cubic resize do not: false is within a grey value of them.
        crop: Side of the square, or (height, width), cut from the centre.
        crop_fraction: In place of resize: the crop's share of the resized image, as timm's crop_pct. The
            image is resized to cover crop ÷ crop_fraction, rounded down: 256 for 224 and 0.875.
        pad: Pixels added after the resize.
        letterbox: In place of resize, crop and pad.
        color: Order of the channels; ``gray`` is one channel, 0.299 R + 0.587 G + 0.114 B, rounded.
        scale: Values are multiplied by it.
        mean: Subtracted after that; one number, or one a channel in the order of ``color``.
        std: Divided by after that; one number, or one a channel.
        layout: Order of the axes that the model gets. ``cwh`` and ``whc`` are for models that were
            trained with height and width swapped.
        dtype: Type that the model gets. If omitted: float32, but whole numbers of an arrays source
            that scale, mean and std do not touch stay as they are stored.
        inputs: Model inputs that this applies to; all if omitted. For arrays only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    resize: Size | None = None
    fit: Fit | None = None
    interpolation: Interpolation = "bilinear"
    antialias: StrictBool = True
    crop: Size | None = None
    crop_fraction: Fraction | None = None
    pad: Pad | None = None
    letterbox: Letterbox | None = None
    color: Literal["rgb", "bgr", "gray"] = "rgb"
    scale: Nonzero = 1.0
    mean: PerChannel = 0.0
    std: Divisor = 1.0
    layout: Layout = "chw"
    dtype: Literal["float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64"] | None = None
    inputs: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuses keys that contradict each other."""
        given = [key for key in ("resize", "crop", "crop_fraction", "pad") if getattr(self, key) is not None]
        if self.letterbox is not None and given:
            raise ValueError(f"letterbox does all of resize, crop and pad: leave out {', '.join(given)}")
        if self.crop_fraction is not None and (self.crop is None or self.resize is not None):
            raise ValueError("crop_fraction goes with crop, and says what resize is: leave out resize")
        if self.crop is not None and self.pad is not None:
            raise ValueError("crop takes pixels away and pad adds them: leave out one of them")
        if self.fit is not None and self.resize is None:
            raise ValueError("fit says what resize means, and there is no resize")
        if not self.antialias and self.interpolation in _ALWAYS_SMOOTH:
            raise ValueError(f"{self.interpolation} is always antialiased: leave out antialias: false")
        return self

    def images_only(self) -> tuple[str, ...]:
        """The keys that were given and have a meaning for images alone."""
        return tuple(key for key in _IMAGES_ONLY if key in self.model_fields_set)

    def record(self, *, images: bool = True) -> dict[str, Any]:
        """Every step with its value, for provenance and reports.

        Args:
            images: Whether the steps that are for images only are part of it, and how images are read.
        """
        if images:
            reading = {**_READING, "resizer": _RESIZERS[self.antialias]}
            return {**reading, **self.model_dump(mode="json", exclude_none=True)}
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
            result = reorder(result, layout, self.layout, origin)
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
    axis = 0 if layout.startswith("c") else values.ndim - 1
    channels = values.shape[axis] if values.ndim else 0
    if channels != len(numbers):
        raise DatasetError(
            f"{what} has {counted(len(numbers), 'number[s]')}, but the sample of shape {values.shape} has "
            f"{counted(channels, 'channel[s]')} (layout {layout}). Give one number, or one for each channel."
        )
    shape = [1] * values.ndim
    shape[axis] = channels
    column: Array = np.asarray(numbers, np.float64).reshape(shape)
    return column


def reorder(values: Array, before: Layout, after: Layout, origin: str) -> Array:
    """Brings the axes of an array into another order.

    Args:
        values: Three axes.
        before: Their order.
        after: The order wanted.
        origin: Where the values came from, for the message.

    Raises:
        DatasetError: There are not three axes.

    >>> reorder(np.zeros((3, 20, 30)), "chw", "whc", "a.npy").shape
    (30, 20, 3)
    """
    if values.ndim != 3:
        raise DatasetError(
            f"{origin}: shape {values.shape} cannot be brought to layout {after}: expected three axes. "
            "Leave out the source's layout."
        )
    reordered: Array = values.transpose([before.index(axis) for axis in after])
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
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
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
