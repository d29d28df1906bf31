"""Image files to pixels, by one reader and one resizer for every use.

Rules, the same for calibration and validation:

- A photo is turned upright by its EXIF orientation; a tag that cannot be read is taken as upright.
- Every image becomes 8-bit RGB. Grey and black-and-white become three equal channels, a palette its
  colours, transparency is dropped (not blended), 16-bit grey keeps its upper 8 bits, of several frames
  the first is taken. Floating-point and 32-bit images are refused.
- Pillow decodes; torchvision.transforms.v2 resizes and crops 8-bit tensors.

``Preprocess.record`` names them, so that reports and provenance do.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.data.dataset import Array
from calib.data.preprocess import Preprocess
from calib.errors import DatasetError, require

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["damage", "read_pixels"]

_PURPOSE = "Reading images"
_MAX_SIDE = 65500
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


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """Opens an image; one of too many pixels is an error, other complaints of Pillow are not."""
    pillow = require("PIL.Image", "torch", _PURPOSE)
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
    pillow = require("PIL.Image", "torch", _PURPOSE)
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


def read_pixels(path: Path, preprocess: Preprocess) -> Array:
    """Decodes an image and does the resize, crop and color steps.

    Args:
        path: The image file.
        preprocess: The steps.

    Returns:
        Shape (channels, height, width), uint8.

    Raises:
        DatasetError: The file cannot be decoded, or is smaller than the crop; the file is named.
        MissingExtraError: torchvision or Pillow is not installed.
    """
    functional = require("torchvision.transforms.v2.functional", "torch", "Preprocessing images")
    tensor = functional.pil_to_tensor(_read_rgb(path))
    if preprocess.resize is not None:
        tensor = _resize(functional, tensor, preprocess, path)
    if preprocess.crop is not None:
        height, width = _pair(preprocess.crop)
        if tensor.shape[1] < height or tensor.shape[2] < width:
            raise DatasetError(
                f"{path}: {tensor.shape[1]} × {tensor.shape[2]} pixels (height × width) are smaller "
                f"than the crop of {height} × {width}. Give preprocess.resize, or a smaller crop."
            )
        tensor = functional.center_crop(tensor, [height, width])
    if preprocess.color == "bgr":
        tensor = tensor.flip(0)
    elif preprocess.color == "gray":
        tensor = functional.rgb_to_grayscale(tensor, num_output_channels=1)
    pixels: Array = tensor.numpy()
    return pixels


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _resize(functional: Any, tensor: Any, preprocess: Preprocess, path: Path) -> Any:
    size = preprocess.resize
    height, width = tensor.shape[1:]
    if isinstance(size, int) and size * max(height, width) > _MAX_SIDE * min(height, width):
        raise DatasetError(
            f"{path}: {height} × {width} pixels are too elongated for a short side of {size}: the long "
            f"one would exceed {_MAX_SIDE}. Give preprocess.resize as [height, width]."
        )
    # Pillow's "nearest" takes the nearest centre; torch calls that nearest-exact.
    nearest = preprocess.interpolation == "nearest"
    kernel = "nearest-exact" if nearest else preprocess.interpolation
    return functional.resize(
        tensor,
        [size] if isinstance(size, int) else list(_pair(size or 1)),
        interpolation=functional.InterpolationMode(kernel),
        antialias=preprocess.antialias,
    )


def _read_rgb(path: Path) -> Image:
    try:
        with _opened(path) as image:
            turn = _UPRIGHT.get(_orientation(image))
            pillow = require("PIL.Image", "torch", _PURPOSE)
            rgb = _to_rgb(image, path)
            return rgb if turn is None else rgb.transpose(pillow.Transpose[turn])
    except DatasetError:
        raise
    except Exception as error:  # whatever a decoder raises on damaged data; the file must be named
        reason = str(error) or type(error).__name__
        raise DatasetError(
            f"Cannot decode {path}: {reason}. Replace the file, or take it out of the folder."
        ) from error


def _orientation(image: Image) -> int:
    """The EXIF orientation, 1 if there is none or the tag is broken.

    Not Pillow's exif_transpose: it writes the whole tag block anew, and fails on a broken one.
    """
    orientation_tag = 0x0112
    try:
        value = image.getexif().get(orientation_tag, 1)
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
        return 1
    return value if isinstance(value, int) else 1


def _to_rgb(image: Image, path: Path) -> Image:
    if image.mode == "F":
        raise DatasetError(f"{path}: floating-point pixels. Use an arrays source.")
    if image.mode.startswith("I"):
        pillow = require("PIL.Image", "torch", _PURPOSE)
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise DatasetError(f"{path}: 32-bit pixels. Use an arrays source.")
        image = pillow.fromarray((values >> 8).astype(np.uint8))
    return image.convert("RGB")
