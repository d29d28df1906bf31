"""Where the pixels of an image go: resize, crop and pad as numbers, before any pixel is touched."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.data.geometry import Geometry
from calib.data.preprocess import Letterbox, Pad, Preprocess
from calib.data.preprocess_values import pair
from calib.errors import DatasetError

__all__ = ["Frame", "frame", "place_mask"]

_MAX_SIDE = 65500
_OUTSIDE = 255

Sides = tuple[int, int]


@dataclass(frozen=True)
class Frame:
    """The steps for one image; every size is (height, width), every corner (top, left).

    Attributes:
        source: Size of the image as it was decoded.
        resized: Size after the resize.
        corner: Upper left corner of the crop in the resized image.
        kept: Size of the crop.
        target: Size after padding.
        margin: Upper left corner of the crop in the padded image.
    """

    source: Sides
    resized: Sides
    corner: Sides
    kept: Sides
    target: Sides
    margin: Sides

    @property
    def geometry(self) -> Geometry:
        """The same as one scale and one shift."""
        (height, width), (tall, wide) = self.source, self.resized
        shift = (float(self.margin[1] - self.corner[1]), float(self.margin[0] - self.corner[0]))
        return Geometry(self.source, self.target, (wide / width, tall / height), shift)

    @property
    def cut(self) -> tuple[slice, slice]:
        """Rows and columns of the crop in the resized image."""
        return _slices(self.corner, self.kept)

    @property
    def inside(self) -> tuple[slice, slice]:
        """Rows and columns of the padded image that hold pixels of the image."""
        return _slices(self.margin, self.kept)


def _slices(corner: Sides, size: Sides) -> tuple[slice, slice]:
    return slice(corner[0], corner[0] + size[0]), slice(corner[1], corner[1] + size[1])


def frame(size: Sides, preprocess: Preprocess, origin: str) -> Frame:
    """Works out the steps for an image of one size.

    Args:
        size: Height and width of the decoded image.
        preprocess: What the recipe says.
        origin: The image, for messages.

    Raises:
        DatasetError: The image is smaller than the crop, larger than what it is padded to, or so
            elongated that a side would exceed 65,500 pixels.

    >>> frame((480, 640), Preprocess(resize=256, crop=224), "a.jpg").geometry.offset
    (-58.0, -16.0)
    >>> frame((480, 640), Preprocess(letterbox={"size": 320}), "a.jpg").inside[0]
    slice(40, 280, None)
    """
    resized = _resized(size, preprocess)
    if max(resized) > _MAX_SIDE:
        raise DatasetError(
            f"{origin}: {size[0]} × {size[1]} pixels are too elongated for a short side of "
            f"{min(resized)}: the long one would exceed {_MAX_SIDE}. Give preprocess.resize as "
            "[height, width]."
        )
    kept = resized if preprocess.crop is None else _cropped(resized, pair(preprocess.crop), origin)
    # Halves are rounded to the even number, as torchvision's CenterCrop does.
    corner = (round((resized[0] - kept[0]) / 2), round((resized[1] - kept[1]) / 2))
    padding = preprocess.letterbox or preprocess.pad
    target = kept if padding is None else _padded(kept, padding, origin)
    margin = (0, 0)
    if padding is not None and padding.place == "center":
        margin = ((target[0] - kept[0]) // 2, (target[1] - kept[1]) // 2)
    return Frame(size, resized, corner, kept, target, margin)


def _resized(size: Sides, preprocess: Preprocess) -> Sides:
    if preprocess.letterbox is not None:
        return _boxed(size, preprocess.letterbox)
    wanted = preprocess.resize
    fit = preprocess.fit or ("short_side" if isinstance(wanted, int) else "stretch")
    if preprocess.crop is not None and preprocess.crop_fraction is not None:
        sides = [math.floor(side / preprocess.crop_fraction) for side in pair(preprocess.crop)]
        wanted, fit = (sides[0] if sides[0] == sides[1] else (sides[0], sides[1])), "short_side"
    if wanted is None:
        return size
    if fit == "stretch":
        return pair(wanted)
    if fit == "height":
        return _by_height(size, wanted)
    if isinstance(wanted, int):
        return _by_side(size, wanted, long=fit == "long_side")
    ratios = (wanted[0] / size[0], wanted[1] / size[1])
    return _scaled(size, min(ratios) if fit == "long_side" else max(ratios))


def _by_side(size: Sides, wanted: int, *, long: bool) -> Sides:
    """The other side is rounded down, as torchvision's Resize does."""
    height, width = size
    height_is_given = (height >= width) if long else (height < width)
    if height_is_given:
        return (wanted, max(1, int(wanted * width / height)))
    return (max(1, int(wanted * height / width)), wanted)


def _by_height(size: Sides, wanted: int | Sides) -> Sides:
    """PP-OCR: ``ceil(height * w / h)``, at most the width that there is."""
    height = wanted if isinstance(wanted, int) else wanted[0]
    width = math.ceil(height * (size[1] / size[0]))
    return (height, width if isinstance(wanted, int) else min(width, wanted[1]))


def _boxed(size: Sides, letterbox: Letterbox) -> Sides:
    box = pair(letterbox.size)
    ratio = min(box[0] / size[0], box[1] / size[1])
    return _scaled(size, ratio if letterbox.enlarge else min(ratio, 1.0))


def _scaled(size: Sides, ratio: float) -> Sides:
    return (max(1, round(size[0] * ratio)), max(1, round(size[1] * ratio)))


def _cropped(size: Sides, crop: Sides, origin: str) -> Sides:
    if size[0] < crop[0] or size[1] < crop[1]:
        raise DatasetError(
            f"{origin}: {size[0]} × {size[1]} pixels (height × width) are smaller than the crop of "
            f"{crop[0]} × {crop[1]}. Give preprocess.resize, or a smaller crop."
        )
    return crop


def _padded(size: Sides, padding: Pad | Letterbox, origin: str) -> Sides:
    if padding.multiple is not None:
        multiple = padding.multiple
        return (-(-size[0] // multiple) * multiple, -(-size[1] // multiple) * multiple)
    target = pair(padding.size or 1)
    if size[0] > target[0] or size[1] > target[1]:
        raise DatasetError(
            f"{origin}: {size[0]} × {size[1]} pixels (height × width) are larger than preprocess.pad.size, "
            f"{target[0]} × {target[1]}. Give preprocess.resize, or a larger size."
        )
    return target


def place_mask(
    mask: npt.NDArray[np.generic], geometry: Geometry, preprocess: Preprocess | None = None
) -> npt.NDArray[np.int32]:
    """Moves a mask of class numbers to where the image's pixels went.

    Each pixel of the model's input takes the class at its centre; none is mixed of two.

    Args:
        mask: Class numbers of the image, shape (height, width).
        geometry: What was done to the image.
        preprocess: The recipe's; with the layout ``cwh`` or ``whc`` the mask's axes are swapped too.

    Returns:
        Shape (height, width) of the model's input; 255 where there was no image.

    Raises:
        DatasetError: The mask is not as large as the image.

    >>> half = Geometry((2, 4), (2, 2), (0.5, 0.5), (0.0, 1.0))
    >>> place_mask(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), half).tolist()
    [[255, 255], [6, 8]]
    """
    if mask.shape != geometry.source:
        raise DatasetError(
            f"A mask of shape {mask.shape} does not fit its image of {geometry.source[0]} × "
            f"{geometry.source[1]} pixels (height × width)."
        )
    rows = _sources(geometry, 0)
    columns = _sources(geometry, 1)
    placed = np.full(geometry.target, _OUTSIDE, np.int32)
    inside = np.ix_(rows >= 0, columns >= 0)
    placed[inside] = mask[np.ix_(rows[rows >= 0], columns[columns >= 0])]
    swapped = preprocess is not None and preprocess.layout in ("cwh", "whc")
    return np.ascontiguousarray(placed.T) if swapped else placed


def _sources(geometry: Geometry, axis: int) -> npt.NDArray[np.int64]:
    """The source's row (or column) under each of the target's, -1 outside."""
    centres = np.arange(geometry.target[axis]) + 0.5
    places = (centres - geometry.offset[1 - axis]) / geometry.scale[1 - axis]
    inside = (places >= 0) & (places < geometry.source[axis])
    return np.where(inside, np.floor(places), -1).astype(np.int64)
