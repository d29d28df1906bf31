"""A small U-Net that finds handwritten digits on a canvas, with the images and masks to judge it.

`python benchmarks/segmentation_network.py FOLDER` (needs torch; a minute with a GPU) writes `segmenter.onnx`,
its weights `segmenter.pt`, `canvases-*.npz` (images, and the class of every pixel: 0 the background, 1 to 10
the digits 0 to 9) and the recipe `canvases.yaml`. Digits are scikit-learn's; those of the canvases to
validate on are in no other.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import calib

SIZE = 64
TRAINING, CALIBRATION, VALIDATION = 8192, 128, 512
STEPS, BATCH = 3000, 32
RECIPE = """\
# Written by benchmarks/segmentation_network.py.
schema: 1
name: digit-canvases
description: Handwritten digits of scikit-learn, two to five on a noisy canvas of 64 x 64
task: {kind: segmentation}
preprocess: {}
calibration:
  samples: 128
  source: {kind: arrays, path: canvases-calibration.npz, labels: masks}
validation:
  source: {kind: arrays, path: canvases-validation.npz, labels: masks}
"""


def canvases(count: int, digits: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images, float32 (count, 1, 64, 64), and the class of every pixel, int32 (count, 64, 64)."""
    random = np.random.default_rng(seed)
    images = random.normal(0.0, 0.08, (count, 1, SIZE, SIZE)).astype(np.float32)
    masks = np.zeros((count, SIZE, SIZE), np.int32)
    for image, mask in zip(images[:, 0], masks, strict=True):
        for _ in range(random.integers(2, 6)):
            chosen = random.integers(len(digits))
            drawn = (
                np.kron(digits[chosen] / 16, np.ones((2, 2)))
                if random.random() < 0.5
                else digits[chosen] / 16
            )
            drawn = np.kron(drawn, np.ones((2, 2)))
            top, left = random.integers(0, SIZE - len(drawn) + 1, 2)
            part = np.s_[top : top + len(drawn), left : left + len(drawn)]
            image[part] = np.maximum(image[part], drawn)
            mask[part][drawn > 0.25] = labels[chosen] + 1
    return np.round(images.clip(-1, 1) * 127) / 127, masks


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with batch normalization and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three levels; class scores, shape (n, 11, height, width)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(block(i, o) for i, o in zip([1, *sizes], sizes, strict=False))
        self.middle = block(sizes[-1], 8 * width)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes))
        self.join = nn.ModuleList(block(2 * size, size) for size in reversed(sizes))
        self.last = nn.Conv2d(width, 11, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Class scores of every pixel."""
        skips = []
        for down in self.down:
            skips.append(down(image))
            image = self.pool(skips[-1])
        image = self.middle(image)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            image = join(torch.cat([up(image), skip], 1))
        return self.last(image)


def train(images: np.ndarray, masks: np.ndarray) -> UNet:
    """Trains on random batches with Adam and a cosine schedule."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = UNet().to(device)
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    order = np.random.default_rng(0)
    for step in range(STEPS):
        chosen = order.integers(0, len(images), BATCH)
        scores = network(torch.from_numpy(images[chosen]).to(device))
        loss = nn.functional.cross_entropy(scores, torch.from_numpy(masks[chosen]).long().to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1} of {STEPS}: loss {loss.item():.4f}", flush=True)
    return network.cpu().eval()


def main(folder: Path) -> None:
    """Draws the canvases, trains, exports."""
    folder.mkdir(parents=True, exist_ok=True)
    digits, labels = load_digits(return_X_y=True)
    digits = digits.reshape(-1, 8, 8)
    network = train(*canvases(TRAINING, digits[:1000], labels[:1000], 1))
    parts = {
        "calibration": canvases(CALIBRATION, digits[:1000], labels[:1000], 2),
        "validation": canvases(VALIDATION, digits[1000:], labels[1000:], 3),
    }
    for name, (images, masks) in parts.items():
        np.savez_compressed(folder / f"canvases-{name}.npz", image=images, masks=masks)
    (folder / "canvases.yaml").write_text(RECIPE)
    sizes = f"image:1x1x{SIZE}x{SIZE}"
    out = folder / "segmenter.onnx"
    torch.save(network.state_dict(), folder / "segmenter.pt")
    calib.export(network, inputs=sizes, out=out, dynamic="batch", output_names=["scores"])
    images, masks = parts["validation"]
    with torch.no_grad():
        right = network(torch.from_numpy(images)).argmax(1).numpy() == masks
    print(f"pixels right: {right.mean():.4f}; of digits: {right[masks > 0].mean():.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
