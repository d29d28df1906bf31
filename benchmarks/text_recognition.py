"""Lines of text for PP-OCR's recogniser, with the recipe of their report.

`python benchmarks/text_recognition.py FOLDER` draws 428 lines and writes them, what they say, and
`text-recognition.yaml` (128 lines to calibrate on, 300 to validate on). The model is
`ch_PP-OCRv4_rec_infer.onnx` of the package rapidocr-onnxruntime 1.4.4.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import real_data

LINES = 428


def main(folder: Path) -> None:
    """Draws the lines, writes the recipe beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    real_data.text_lines(folder, LINES)
    recipe = (Path(__file__).parents[1] / "datasets" / "text-recognition.yaml").read_text()
    (folder / "text-recognition.yaml").write_text(recipe.replace("samples: 256", "samples: 128"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
