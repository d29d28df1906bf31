"""A contact sheet: what the model will see, with labels, boxes and masks, as one PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.data.dataset import Array, Dataset, Sample
from calib.data.display import Display, Picture
from calib.data.geometry import Geometry
from calib.data.overview import sample_kind, spread, steps_of
from calib.data.sources.base import printable
from calib.data.truth import IGNORED, Boxes, Pair
from calib.errors import UsageError, require
from calib.wording import counted

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["Sheet", "draw_sheet"]

_EXTRA = "images"
_PURPOSE = "Drawing a contact sheet"
_MOST = 400
_TILE = 176
_WIDEST = 1400
_GAP = 10
_LINE = 15
_INK, _PALE, _PAPER, _EMPTY = (25, 25, 25), (110, 110, 110), (255, 255, 255), (235, 235, 235)
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLORS = (
    *((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66)),
    *((0, 114, 178), (213, 94, 0), (204, 121, 167)),
)


@dataclass(frozen=True)
class Sheet:
    """A drawn contact sheet.

    Attributes:
        png: The file's content.
        pictures: How many samples were drawn.
        notes: How values became grey, and what could not be drawn.
    """

    png: bytes
    pictures: int
    notes: tuple[str, ...]


@dataclass
class _Tile:
    """One input of one sample, and what is written below it."""

    lines: list[str]
    sample: Sample
    values: Array
    kind: str
    drawn: Image | None = None


def draw_sheet(dataset: Dataset, samples: int = 36, title: str = "") -> Sheet:
    """Draws samples of a dataset as the model will see them.

    Images and arrays of two axes are drawn as pictures, one scale for all of them; sound and other long
    rows as curves. Boxes are moved to where preprocessing moved the pixels; masks lie over the image.

    Args:
        dataset: Any dataset.
        samples: How many, spread evenly; at most 400.
        title: First line of the sheet.

    Raises:
        UsageError: The number is not from 1 to 400.
        DatasetError: A sample cannot be read.
        MissingExtraError: Pillow is not installed.
    """
    if not 1 <= samples <= _MOST:
        raise UsageError(f"A contact sheet has from 1 to {_MOST} samples, got {samples}.")
    require("PIL.Image", _EXTRA, _PURPOSE)
    chosen = [dataset[index] for index in spread(len(dataset), samples)]
    tiles = [tile for sample in chosen for tile in _tiles(sample, dataset)]
    notes = _fill(tiles, dataset)
    head = [title or dataset.name, *notes]
    stream = io.BytesIO()
    _assemble(tiles, head).save(stream, "PNG", optimize=True)
    return Sheet(stream.getvalue(), len(chosen), tuple(notes))


def _tiles(sample: Sample, dataset: Dataset) -> list[_Tile]:
    several = len(sample.inputs) > 1
    tiles = []
    for name, values in sample.inputs.items():
        label = _caption(sample.label, dataset.class_names)
        lines = [sample.id, *([label] if label else []), *([f"input {name}"] if several else [])]
        tiles.append(_Tile(lines, sample, values, sample_kind(sample, name)))
    return tiles


def _caption(label: Any, names: Sequence[str] | None) -> str:
    if label is None:
        return ""
    if isinstance(label, Boxes):
        return counted(len(label.boxes), "box[es]")
    if isinstance(label, Pair):
        return f"pair {label.pair}: {label.score:g}"
    if isinstance(label, np.ndarray):
        if label.ndim == 2:
            return f"mask: {_mask_classes(label, names)}"
        return ", ".join(f"{number:.4g}" for number in label.ravel()[:4])
    if isinstance(label, (int, np.integer)) and names is not None and 0 <= label < len(names):
        name = names[int(label)]
        return name if name == str(label) else f"{label} {name}"
    return str(label)


def _mask_classes(mask: Array, names: Sequence[str] | None) -> str:
    numbers = [int(number) for number in np.unique(mask[mask != IGNORED])]
    known = [str(n) if names is None or not 0 <= n < len(names) else names[n] for n in numbers]
    return ", ".join(known[:6]) + (f" and {len(known) - 6} more" if len(known) > 6 else "")


def _fill(tiles: list[_Tile], dataset: Dataset) -> list[str]:
    """Draws every tile; says how."""
    images = [tile for tile in tiles if tile.kind == "image"]
    plots = [tile for tile in tiles if tile.kind == "plot"]
    notes = []
    if images:
        display = Display.of(dataset, [tile.values for tile in images])
        outside = sum([_draw_image(tile, display, dataset) for tile in images])
        notes.append(f"As the model sees it; {display.note}.")
        if outside:
            notes.append(f"{outside} of {len(images)} have values beyond black or white, which were cut off.")
    if plots:
        ends = [float(np.nanmin([np.nanmin(tile.values) for tile in plots]))]
        ends.append(float(np.nanmax([np.nanmax(tile.values) for tile in plots])))
        for tile in plots:
            tile.drawn = _curve(tile.values, ends[0], ends[1])
        notes.append(f"Curves from {ends[0]:.4g} (bottom) to {ends[1]:.4g} (top).")
    for tile in tiles:
        if tile.drawn is None:
            extent = f", {tile.values.min():.4g} … {tile.values.max():.4g}" if tile.values.size else ""
            tile.lines.append(f"{tile.values.dtype} {list(tile.values.shape)}{extent}")
    others = len(tiles) - len(images) - len(plots)
    if others:
        neither = counted(others, "input[ is neither picture nor curve|s are neither pictures nor curves]")
        notes.append(f"{neither}: types, shapes and ranges instead.")
    return notes


def _draw_image(tile: _Tile, display: Display, dataset: Dataset) -> bool:
    picture, outside = display.picture(tile.values)
    label = tile.sample.label
    if isinstance(label, np.ndarray) and label.ndim == 2:
        upright = label.T if steps_of(dataset).layout in ("cwh", "whc") else label
        if upright.shape == picture.shape[:2]:
            picture = _overlaid(picture, upright)
    image, factor = _scaled(picture)
    if isinstance(label, Boxes):
        geometry = tile.sample.geometry or Geometry.identity((picture.shape[0], picture.shape[1]))
        _draw_boxes(image, label, geometry, factor, dataset.class_names)
    tile.drawn = image
    return outside


def _overlaid(picture: Picture, mask: Array) -> Picture:
    """Class 0 and what is not judged stay as they are."""
    colors = np.asarray(_COLORS, np.float64)[(mask.astype(np.int64) - 1) % len(_COLORS)]
    shown = ((mask != 0) & (mask != IGNORED))[..., None]
    return np.where(shown, 0.5 * picture + 0.5 * colors, picture).astype(np.uint8)


def _scaled(picture: Picture) -> tuple[Image, float]:
    """Enlarges by a whole number, so that pixels stay visible, or shrinks; and by how much."""
    pillow = require("PIL.Image", _EXTRA, _PURPOSE)
    height, width = picture.shape[:2]
    factor: float = _TILE / max(height, width / 2)
    factor = math.floor(factor) if factor >= 1 else factor
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    kernel = pillow.Resampling.NEAREST if factor >= 1 else pillow.Resampling.BOX
    return pillow.fromarray(np.ascontiguousarray(picture)).resize(size, kernel), factor


def _draw_boxes(
    image: Image, truth: Boxes, geometry: Geometry, factor: float, names: Sequence[str] | None
) -> None:
    draw = _draw(image)
    for box, number in zip(geometry.to_model(truth.boxes) * factor, truth.classes.tolist(), strict=True):
        left, top, right, bottom = box.tolist()
        color = _COLORS[number % len(_COLORS)]
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=color, width=2)
        name = names[number] if names is not None and 0 <= number < len(names) else str(number)
        draw.text(
            (left + 3, top + 1), printable(name), fill=color, font=_font(), stroke_width=1, stroke_fill=_INK
        )


def _curve(values: Array, low: float, high: float) -> Image:
    """The smallest and largest value under each pixel column, joined."""
    pillow = require("PIL.Image", _EXTRA, _PURPOSE)
    image: Image = pillow.new("RGB", (2 * _TILE, _TILE // 2), _EMPTY)
    draw, row = _draw(image), np.nan_to_num(np.ravel(values).astype(np.float64))
    columns = np.array_split(row, min(image.width, row.size))
    tall = image.height - 1
    height = (high - low) or 1.0
    step = (image.width - 1) / max(1, len(columns) - 1)
    points: list[tuple[float, float]] = []
    for number, part in enumerate(columns):
        ends = (part.max(), part.min()) if number % 2 else (part.min(), part.max())
        points += [(number * step, tall - (float(end) - low) / height * tall) for end in ends]
    draw.line(points, fill=_COLORS[4])
    return image


def _draw(image: Image) -> ImageDraw:
    module = require("PIL.ImageDraw", _EXTRA, _PURPOSE)
    draw: ImageDraw = module.Draw(image)
    return draw


def _font() -> Any:
    return require("PIL.ImageFont", _EXTRA, _PURPOSE).load_default(size=12)


def _assemble(tiles: list[_Tile], head: list[str]) -> Image:
    """Puts tiles into rows of equal cells below the heading."""
    pillow = require("PIL.Image", _EXTRA, _PURPOSE)
    wide = max([_TILE, *(tile.drawn.width for tile in tiles if tile.drawn is not None)])
    tall = max([0, *(tile.drawn.height for tile in tiles if tile.drawn is not None)])
    text = max(len(tile.lines) for tile in tiles) * _LINE
    columns = min(len(tiles), max(1, (_WIDEST - _GAP) // (wide + _GAP)))
    columns = max(columns, min(len(tiles), 4))
    # Every row begins with a sample's first input.
    group = len(tiles[0].sample.inputs)
    columns = max(group, columns - columns % group)
    rows = math.ceil(len(tiles) / columns)
    top = _GAP + len(head) * (_LINE + 3) + _GAP
    cell = (wide + _GAP, tall + text + 2 * _GAP)
    sheet: Image = pillow.new("RGB", (_GAP + columns * cell[0], top + rows * cell[1]), _PAPER)
    draw = _draw(sheet)
    for number, line in enumerate(head):
        ink = _PALE if number else _INK
        _write(draw, (_GAP, _GAP + number * (_LINE + 3)), line, sheet.width - 2 * _GAP, ink)
    for number, tile in enumerate(tiles):
        left, upper = _GAP + number % columns * cell[0], top + number // columns * cell[1]
        if tile.drawn is not None:
            sheet.paste(tile.drawn, (left, upper))
        for place, words in enumerate(tile.lines):
            _write(draw, (left, upper + tall + 3 + place * _LINE), words, wide, _PALE if place else _INK)
    return sheet


def _write(
    draw: ImageDraw, place: tuple[int, int], words: str, width: int, ink: tuple[int, int, int]
) -> None:
    """Writes one line; of one that is too long the end is kept, where file names differ."""
    font, text = _font(), printable(words)
    while draw.textlength(text, font=font) > width and len(text) > 2:
        text = "…" + text[2:]
    draw.text(place, text, fill=ink, font=font)
