"""A small network trained here on Fashion-MNIST, from PyTorch to the report."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from real_assets import asset
from real_pipeline import recipe_beside, run_pipeline
from torch import nn

import calib
from calib.data import load_recipe

_IMAGES, _EPOCHS, _BATCH = 20_000, 2, 100


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )


def training_images(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The first images as the recipe prepares them, and their classes, read with numpy alone."""
    pixels = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    classes = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    images = np.frombuffer(pixels, np.uint8).reshape(-1, 1, 28, 28)[:_IMAGES].astype(np.float32) / 255
    return torch.from_numpy(images), torch.tensor(list(classes[:_IMAGES]))


def trained(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """The network after two epochs, a few seconds on one core."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    steps = _EPOCHS * _IMAGES // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(_IMAGES).split(_BATCH):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def test_fashion_mnist(tmp_path: Path) -> None:
    root = asset("fashion-mnist") / "usr" / "share" / "datasets"
    changes = {"root": str(root), "calibration": {"samples": 128}, "validation": {"samples": 2000}}
    recipe = recipe_beside(tmp_path, "fashion-mnist", **changes)
    images, labels = training_images(root / "fashion-mnist")
    first = load_recipe(recipe).open("calibration")[0]
    np.testing.assert_allclose(first.inputs["input"], images[0].numpy(), rtol=1e-6)
    assert first.label == labels[0]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = trained(images, labels)
    finally:
        torch.set_num_threads(threads)
    exported = tmp_path / "fashion.onnx"
    calib.export(model, inputs={"input": (1, 1, 28, 28)}, dynamic="batch", out=exported)
    outcome = run_pipeline(exported, recipe, tmp_path, batch_size=50)
    assert outcome.fp32("top1") > 0.85
    assert max(outcome.int8("top1").values()) >= outcome.fp32("top1") - 0.01
    # Both convolutions and the fully connected layer.
    assert outcome.pairs["entropy"][0] >= 3
