"""What is unusual about image files: the reader's rules cope with it, but a model may not."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from calib.data.findings import Finding, Severity
from calib.data.pixels import orientation
from calib.errors import require
from calib.wording import counted

__all__ = ["FileFacts", "check_files", "file_facts"]


@dataclass(frozen=True)
class FileFacts:
    """What the head of an image file says.

    Attributes:
        name: The sample.
        form: Pillow's name of the format, such as ``JPEG``.
        ending: The file's ending, in small letters.
        mode: Pillow's mode, such as ``CMYK``.
        size: Height and width, as stored.
        frames: Pictures in the file.
        orientation: EXIF orientation, 1 if upright.
        transparent: Whether it has transparency.
    """

    name: str
    form: str
    ending: str
    mode: str
    size: tuple[int, int]
    frames: int
    orientation: int
    transparent: bool


def file_facts(name: str, path: Path) -> FileFacts | None:
    """Reads the head of an image file; None where it is no image, or damaged.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    pillow = require("PIL.Image", "images", "Looking at image files")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pillow.open(path) as image:
                return FileFacts(
                    name=name,
                    form=image.format or "",
                    ending=path.suffix.lower(),
                    mode=image.mode,
                    size=(image.height, image.width),
                    frames=getattr(image, "n_frames", 1),
                    orientation=orientation(image),
                    transparent="A" in image.mode or "transparency" in image.info,
                )
    except Exception:  # whatever a decoder raises; damage is reported by the source, which decodes
        return None


_ENDINGS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "MPO": (".jpg", ".jpeg", ".mpo"),
    "PNG": (".png",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "WEBP": (".webp",),
    "TIFF": (".tif", ".tiff"),
}


def _wrong_ending(facts: FileFacts) -> bool:
    return facts.form in _ENDINGS and facts.ending not in _ENDINGS[facts.form]


_RULES: tuple[tuple[str, Severity, Callable[[FileFacts], bool], str, str], ...] = (
    (
        "cmyk",
        "warning",
        lambda facts: facts.mode == "CMYK",
        "CMYK images (for print) are converted to RGB without a colour profile: colours may be off",
        "Convert them to RGB with the program that made them.",
    ),
    (
        "palette",
        "note",
        lambda facts: facts.mode == "P" and facts.frames == 1,
        "palette images become the RGB colours of their palette",
        "",
    ),
    (
        "sixteen-bit",
        "warning",
        lambda facts: facts.mode.startswith("I"),
        "16-bit images keep their upper 8 bits: dark ones may become black",
        "If the model was trained on 16 bits, use an arrays source.",
    ),
    (
        "black-and-white",
        "note",
        lambda facts: facts.mode == "1",
        "1-bit images become grey values of 0 and 255",
        "",
    ),
    (
        "transparent",
        "note",
        lambda facts: facts.transparent,
        "transparency is dropped, not blended: what lies under it is seen",
        "If the model was trained on a white background, flatten them onto white.",
    ),
    (
        "exif-turned",
        "note",
        lambda facts: facts.orientation != 1,
        "photos are turned upright by their EXIF tag, for calibration and validation alike",
        "OpenCV before 3.1 and TensorFlow do not turn: if the model was trained so, store them unturned.",
    ),
    (
        "animated",
        "warning",
        lambda facts: facts.frames > 1 and facts.form != "MPO",
        "files hold several pictures, of which the first is taken",
        "Take them out, or store the picture that is meant by itself.",
    ),
    (
        "wrong-ending",
        "note",
        _wrong_ending,
        "files are of another format than their ending says; they are read by their content",
        "",
    ),
)


def check_files(files: Sequence[FileFacts]) -> list[Finding]:
    """Findings on the form of image files, one for each kind of it."""
    found = []
    for code, severity, applies, message, advice in _RULES:
        where = tuple(facts.name for facts in files if applies(facts))
        if where:
            found.append(Finding(code, severity, f"{len(where)} of {len(files)}: {message}.", where, advice))
    return [*found, *_sizes(files)]


def _sizes(files: Iterable[FileFacts]) -> list[Finding]:
    sizes = Counter(facts.size for facts in files)
    if len(sizes) < 2:
        return []
    (height, width), count = sizes.most_common(1)[0]
    heights, widths = [size[0] for size in sizes], [size[1] for size in sizes]
    message = (
        f"Images are of {len(sizes)} sizes, {min(heights)} to {max(heights)} high and {min(widths)} to "
        f"{max(widths)} wide; most often {height} × {width} ({counted(count, 'image[s]')})."
    )
    return [Finding("mixed-sizes", "note", message)]
