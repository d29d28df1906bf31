"""Image files to pixels, by one reader and one resizer for every use.

Rules, the same for calibration and validation:

- A photo is turned upright by its EXIF orientation; a tag that cannot be read is taken as upright.
- Every image becomes 8-bit RGB. Grey and black-and-white become three equal channels, a palette its
  colours, transparency is dropped (not blended), 16-bit grey keeps its upper 8 bits, of several frames
  the first is taken. Floating-point and 32-bit images are refused.
- Pillow decodes and resizes, as torchvision's own presets and timm do on its images: the grey values are
  theirs, and the same on every machine. Without antialias torchvision resizes tensors, since Pillow always
  smooths; that is within a grey value of OpenCV's linear and cubic resize, and the one step that needs torch.

``Preprocess.record`` names them, so that reports and provenance do.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calib.data.dataset import Array
from calib.data.framing import Frame, frame, place_mask
from calib.data.geometry import Geometry
from calib.data.preprocess import Preprocess
from calib.errors import DatasetError, require

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "Prepared",
    "damage",
    "orientation",
    "place_mask",
    "prepare_image",
    "prepare_pixels",
    "read_image",
    "read_size",
]

_PURPOSE = "Reading images"
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_ON_ITS_SIDE = ("TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """Opens an image; one of too many pixels is an error, other complaints of Pillow are not."""
    pillow = require("PIL.Image", "images", _PURPOSE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        with pillow.open(path) as image:
            yield image


def damage(path: Path) -> str | None:
    """Says what is wrong with an image file, or None if it looks whole.

    Reads the header and the last bytes. Only if the format's end mark is not there is the image
    decoded to find out, so a scan of a large folder takes little time.
    """
    pillow = require("PIL.Image", "images", _PURPOSE)
    try:
        if path.stat().st_size == 0:
            return "0 bytes"
        with _opened(path) as image:
            if image.mode == "F":
                return "floating-point pixels"
            if not _ends_well(path, image.format):
                image.load()
    except pillow.UnidentifiedImageError:
        return "not an image"
    except FileNotFoundError:
        return "link to a file that does not exist"
    except Exception as error:  # whatever a decoder raises on damaged data
        return str(error) or type(error).__name__
    return None


def _ends_well(path: Path, image_format: str | None) -> bool:
    end = _ENDS.get(image_format or "")
    with path.open("rb") as stream:
        stream.seek(-min(64, stream.seek(0, 2)), 2)
        return end is not None and stream.read().rstrip(b"\0").endswith(end)


@dataclass(frozen=True)
class Prepared:
    """One image as the model will see it.

    Attributes:
        values: The model's input, without a batch axis.
        geometry: How the image's pixels were moved.
    """

    values: Array
    geometry: Geometry


def prepare_image(path: Path, preprocess: Preprocess) -> Prepared:
    """Decodes an image file and does every step of the preprocessing.

    Args:
        path: The image file.
        preprocess: The steps.

    Raises:
        DatasetError: The file cannot be decoded, or does not suit a step; the file is named.
        MissingExtraError: torchvision or Pillow is not installed.
    """
    return prepare_pixels(read_image(path), preprocess, str(path))


def prepare_pixels(image: Image | Array, preprocess: Preprocess, origin: str) -> Prepared:
    """Does every step of the preprocessing on an image in memory.

    Args:
        image: An image of Pillow, upright; or 8-bit pixels of shape (height, width, 3), red first, or
            (height, width) for grey.
        preprocess: The steps.
        origin: Where the image came from, for messages.

    Raises:
        DatasetError: The pixels are not such, or do not suit a step.
        MissingExtraError: torchvision or Pillow is not installed.
    """
    pixels, plan = _framed(_as_image(image, origin), preprocess, origin)
    values = preprocess.apply(pixels, origin, "chw")
    padding = preprocess.letterbox or preprocess.pad
    if padding is not None and padding.value == "mean":
        values = _emptied(values, plan, preprocess)
    return Prepared(values, plan.geometry)


def _emptied(values: Array, plan: Frame, preprocess: Preprocess) -> Array:
    """Zero wherever there is no image: what the mean becomes."""
    place: list[slice] = [slice(None)] * 3
    place[preprocess.layout.index("h")], place[preprocess.layout.index("w")] = plan.inside
    empty = np.zeros_like(values)
    empty[tuple(place)] = values[tuple(place)]
    return empty


def _as_image(image: Image | Array, origin: str) -> Image:
    if not isinstance(image, np.ndarray):
        return _to_rgb(image, origin)
    pillow = require("PIL.Image", "images", _PURPOSE)
    grey = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 1)
    if image.dtype != np.uint8 or not image.size or not (grey or (image.ndim == 3 and image.shape[2] == 3)):
        raise DatasetError(
            f"{origin}: expected 8-bit pixels of shape (height, width, 3) or (height, width), "
            f"got {image.dtype} {image.shape}."
        )
    flat = image.reshape(image.shape[:2]) if grey else image
    rgb: Image = pillow.fromarray(np.ascontiguousarray(flat)).convert("RGB")
    return rgb


def _framed(image: Image, preprocess: Preprocess, origin: str) -> tuple[Array, Frame]:
    """The steps from resize to color; the mean of ``pad.value`` is black here."""
    plan = frame((image.height, image.width), preprocess, origin)
    resized = image if plan.resized == plan.source else _resized(image, plan, preprocess)
    pixels = np.asarray(resized)[plan.cut].transpose(2, 0, 1)
    if plan.target != plan.kept:
        pixels = _padded(pixels, plan, preprocess)
    return _colored(pixels, preprocess), plan


def _resized(image: Image, plan: Frame, preprocess: Preprocess) -> Image | Array:
    if preprocess.antialias:
        pillow = require("PIL.Image", "images", _PURPOSE)
        height, width = plan.resized
        resized: Image = image.resize((width, height), pillow.Resampling[preprocess.interpolation.upper()])
        return resized
    return _resized_sharply(image, plan, preprocess)


def _resized_sharply(image: Image, plan: Frame, preprocess: Preprocess) -> Array:
    functional = require("torchvision.transforms.v2.functional", "torch", "Resizing without antialias")
    # Pillow's "nearest" takes the nearest centre; torch calls that nearest-exact.
    nearest = preprocess.interpolation == "nearest"
    kernel = functional.InterpolationMode("nearest-exact" if nearest else preprocess.interpolation)
    # In float: torch's own 8-bit kernels differ between processors, and from OpenCV by up to 31.
    tensor = functional.pil_to_tensor(image).float()
    tensor = functional.resize(tensor, list(plan.resized), interpolation=kernel, antialias=False)
    pixels: Array = tensor.round().clamp(0, 255).numpy().astype(np.uint8).transpose(1, 2, 0)
    return pixels


def _padded(pixels: Array, plan: Frame, preprocess: Preprocess) -> Array:
    padding = preprocess.letterbox or preprocess.pad
    value = 0 if padding is None or padding.value == "mean" else padding.value
    canvas = np.empty((3, *plan.target), np.uint8)
    canvas[:] = np.broadcast_to(value, 3).reshape(3, 1, 1)
    canvas[:, plan.inside[0], plan.inside[1]] = pixels
    return canvas


def _colored(pixels: Array, preprocess: Preprocess) -> Array:
    if preprocess.color == "bgr":
        return np.ascontiguousarray(pixels[::-1])
    if preprocess.color == "rgb":
        return np.ascontiguousarray(pixels)
    pillow = require("PIL.Image", "images", _PURPOSE)
    image = pillow.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    gray: Array = np.asarray(image.convert("L"))[None]
    return gray


def read_image(path: Path) -> Image:
    """Decodes an image file by the rules above: upright, 8-bit RGB.

    Raises:
        DatasetError: The file cannot be decoded; it is named.
        MissingExtraError: Pillow is not installed.
    """
    try:
        with _opened(path) as image:
            turn = _turn(image)
            pillow = require("PIL.Image", "images", _PURPOSE)
            rgb = _to_rgb(image, str(path))
            return rgb if turn is None else rgb.transpose(pillow.Transpose[turn])
    except DatasetError:
        raise
    except Exception as error:  # whatever a decoder raises on damaged data; the file must be named
        reason = str(error) or type(error).__name__
        raise DatasetError(
            f"Cannot decode {path}: {reason}. Replace the file, or take it out of the folder."
        ) from error


def orientation(image: Image) -> int:
    """The EXIF orientation, 1 if there is none or the tag is broken.

    Not Pillow's exif_transpose: it writes the whole tag block anew, and fails on a broken one.
    """
    orientation_tag = 0x0112
    try:
        value = image.getexif().get(orientation_tag, 1)
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
        return 1
    return value if isinstance(value, int) else 1


def _turn(image: Image) -> str | None:
    """How an image is turned upright; TIFF files are by Pillow itself, while it decodes them."""
    return None if image.format == "TIFF" else _UPRIGHT.get(orientation(image))


def _to_rgb(image: Image, origin: str) -> Image:
    if image.mode == "F":
        raise DatasetError(f"{origin}: floating-point pixels. Use an arrays source.")
    if image.mode.startswith("I"):
        pillow = require("PIL.Image", "images", _PURPOSE)
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise DatasetError(f"{origin}: 32-bit pixels. Use an arrays source.")
        image = pillow.fromarray((values >> 8).astype(np.uint8))
    return image.convert("RGB")


def read_size(path: Path) -> tuple[int, int]:
    """Height and width of an image after it is turned upright.

    Pixels are not decoded, but those of a TIFF file that is to be turned.

    Raises:
        DatasetError: The file is no image; it is named.
        MissingExtraError: Pillow is not installed.
    """
    try:
        with _opened(path) as image:
            if image.format == "TIFF" and orientation(image) != 1:
                # Before that its size is the stored one or the upright one, as Pillow's version has it.
                image.load()
            turned = _turn(image) in _ON_ITS_SIDE
            width, height = image.size
    except Exception as error:  # whatever a decoder raises on damaged data; the file must be named
        reason = str(error) or type(error).__name__
        raise DatasetError(f"Cannot read {path}: {reason}.") from error
    return (width, height) if turned else (height, width)
