"""Networks by hand for tasks beyond classification, and pictures that they answer exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from networks import model, node

from calib.data import Dataset, Preprocess
from calib.data.sources.base import Opening
from calib.data.sources.coco import CocoSource

CELL = 8
GRID = 4
COLUMNS = 3  # of the grid that have squares: a box that is shifted to the right stays in the picture
SIZE = CELL * GRID
COLOURS = 3


def square_detector(shift: float = 0.0) -> onnx.ModelProto:
    """Finds coloured squares of 8×8 pixels that lie on a 4×4 grid, and answers as YOLOv8 does.

    A convolution with stride 8 takes the mean of each cell in one colour: the score of that class. Boxes
    are the cells, ``shift`` pixels to the right of where they are.
    """
    weights = np.zeros((COLOURS, COLOURS, CELL, CELL), np.float32)
    for colour in range(COLOURS):
        weights[colour, colour] = 1 / CELL**2
    centres = (np.arange(GRID) + 0.5) * CELL
    y, x = np.meshgrid(centres, centres, indexing="ij")
    boxes = np.stack([x.ravel() + shift, y.ravel(), np.full(GRID**2, CELL), np.full(GRID**2, CELL)])
    constants = {
        "w": weights,
        "cells": boxes[None].astype(np.float32),
        "flat": np.array([0, COLOURS, GRID**2], np.int64),
        "zero": np.zeros(1, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["mean"], kernel_shape=[CELL, CELL], strides=[CELL, CELL]),
        node("Reshape", ["mean", "flat"], ["scores"]),
        node("ReduceMax", ["scores"], ["most"], axes=[1], keepdims=1),
        node("Mul", ["most", "zero"], ["nothing"]),
        node("Add", ["nothing", "cells"], ["boxes"]),
        node("Concat", ["boxes", "scores"], ["found"], axis=1),
    ]
    return model(
        nodes,
        {"x": ["N", 3, SIZE, SIZE]},
        {"found": ["N", 4 + COLOURS, GRID**2]},
        constants,
    )


def draw_squares(folder: Path, images: int, *, wide: bool = False, seed: int = 0) -> Path:
    """Writes pictures of squares and their COCO file, with the ids 1, 2 and 3; returns the file.

    A picture has 1 to 4 squares, none twice at a place. ``wide`` pictures are 64×32 with squares of 16×16, so
    that letterboxing to 32×32 puts them on the grid.
    """
    from PIL import Image

    random = np.random.default_rng(seed)
    side, rows = (2 * CELL, 2) if wide else (CELL, GRID)
    height = side * rows
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    listed, objects = [], []
    for number in range(images):
        picture = np.zeros((height, side * GRID, 3), np.uint8)
        for place in random.choice(rows * COLUMNS, random.integers(1, 5), replace=False).tolist():
            row, column, colour = place // COLUMNS, place % COLUMNS, int(random.integers(COLOURS))
            picture[row * side : (row + 1) * side, column * side : (column + 1) * side, colour] = 255
            box = [column * side, row * side, side, side]
            objects.append(
                {"id": len(objects) + 1, "image_id": number + 1, "category_id": colour + 1, "bbox": box}
            )
            objects[-1].update(area=side * side, iscrowd=0)
        Image.fromarray(picture).save(folder / "pictures" / f"{number:03}.png")
        size = {"width": picture.shape[1], "height": height}
        listed.append({"id": number + 1, "file_name": f"{number:03}.png", **size})
    categories = [{"id": colour + 1, "name": name} for colour, name in enumerate(("red", "green", "blue"))]
    content = {"images": listed, "annotations": objects, "categories": categories}
    file = folder / "squares.json"
    file.write_text(json.dumps(content))
    return file


def squares_dataset(file: Path, **source: Any) -> Dataset:
    """The pictures of ``draw_squares``, in letterbox where they are wide."""
    steps = {"scale": "1/255", "letterbox": {"size": SIZE}}
    opening = Opening(
        "squares", file.parent, Preprocess.model_validate(steps), lambda *key: ".".join(map(str, key))
    )
    options = {"kind": "coco", "annotations": file.name, "path": "pictures", **source}
    return CocoSource.model_validate(options).open(opening)
