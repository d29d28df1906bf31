"""Reading photos with and without worker processes: what starting them costs, and what a photo takes then.

python benchmarks/loading.py --photos 256 --workers 0,1,2
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from calib.data import Dataset, open_calibration
from calib.data.recipe import load_recipe

BATCH = 16
RECIPE = """
schema: 1
name: photos
source: {{kind: images, path: images}}
preprocess: {{resize: 256, crop: 224, scale: 1/255, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
calibration: {{samples: {count}, seed: 0}}
"""


def photos(folder: Path, count: int) -> Dataset:
    """JPEG files of 1600 × 1200 pixels, smooth noise, about 270 KB each."""
    random = np.random.default_rng(0)
    (folder / "images").mkdir()
    for number in range(count):
        small = Image.fromarray(random.integers(0, 256, (40, 53, 3), dtype=np.uint8))
        large = small.resize((1600, 1200), Image.Resampling.BICUBIC)
        large.save(folder / "images" / f"{number}.jpg", quality=90)
    (folder / "recipe.yaml").write_text(RECIPE.format(count=count))
    return open_calibration(load_recipe(folder / "recipe.yaml"))


def timed(dataset: Dataset, workers: int) -> tuple[float, float]:
    """Seconds until the first batch is there, and until the last one is."""
    start, first = time.perf_counter(), 0.0
    for _ in dataset.with_workers(workers).batches(BATCH):
        first = first or time.perf_counter() - start
    return first, time.perf_counter() - start


def main() -> None:
    """Prints a row for each number of workers; they take turns, the best of each counts."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--photos", type=int, default=384)
    options.add_argument("--workers", default="0,1,2")
    options.add_argument("--repeats", type=int, default=4)
    given = options.parse_args()
    numbers = [int(text) for text in given.workers.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        dataset = photos(Path(folder), given.photos)
        timed(dataset, 0)
        found = [[timed(dataset, workers) for workers in numbers] for _ in range(given.repeats)]
    print(f"{given.photos} photos, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("workers  first batch (s)  then ms a photo  all (s)")
    for column, workers in enumerate(numbers):
        times = [row[column] for row in found]
        first, whole = min(first for first, _ in times), min(whole for _, whole in times)
        rest = min(whole - first for first, whole in times) / max(1, given.photos - BATCH)
        print(f"{workers:7}  {first:15.2f}  {1e3 * rest:15.1f}  {whole:7.2f}")


if __name__ == "__main__":
    main()
