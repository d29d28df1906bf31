"""Lines of text for PP-OCR's direction classifier, as arrays for a machine without torchvision.

`python benchmarks/text_direction.py FOLDER` (needs torch and torchvision) draws 500 lines, upright and turned
by 180 degrees, prepares them by the recipe `datasets/text-direction.yaml`, writes `lines.npz` and the recipe
`lines.yaml`. The model is `ch_ppocr_mobile_v2.0_cls_infer.onnx` of the package rapidocr-onnxruntime 1.4.4.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import real_data

from calib.data import load_recipe, open_validation

LINES = 500
RECIPE = """\
# Written by benchmarks/text_direction.py: prepared as datasets/text-direction.yaml says.
schema: 1
name: text-direction
description: Rendered lines of text, upright or turned by 180 degrees
task: classification
source: {kind: arrays, path: lines.npz, labels: turned, inputs: {x: x}}
calibration: {samples: 200}
"""


def main(folder: Path) -> None:
    """Draws, prepares, writes."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        root = real_data.turned_lines(Path(made), LINES)
        samples = list(open_validation(load_recipe("text-direction", root)))
    images = np.stack([next(iter(sample.inputs.values())) for sample in samples])
    np.savez_compressed(folder / "lines.npz", x=images, turned=np.array([sample.label for sample in samples]))
    (folder / "lines.yaml").write_text(RECIPE)
    print(images.shape, images.min(), images.max())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
