"""Networks whose latency `placement.py` measures: torchvision's shapes with seeded random weights.

`python benchmarks/placement_networks.py FOLDER` (needs torch and torchvision) writes each network without its
large weights, a few hundred kilobytes; `load` draws them again from a seed, so that a machine with TensorRT
needs neither torch nor hundreds of megabytes. Latency does not hang on the values; batch normalization has
statistics of structured noise, so that activations have the scale that they have in trained networks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

SIZES = {
    "resnet18": 224,
    "resnet50": 224,
    "mobilenet_v2": 224,
    "efficientnet_lite0": 224,
    "efficientnet_b0": 224,
    "unet": 256,
    "vit": 224,
}
_LARGE = 4096


def images(count: int, size: int, seed: int) -> np.ndarray:
    """Structured noise, float32 (count, 3, size, size), standard deviation 1."""
    random = np.random.default_rng(seed)
    found = np.zeros((count, 3, size, size), np.float32)
    for cells in (4, 8, 16, 32, 64):
        coarse = random.standard_normal((count, 3, cells, cells)).astype(np.float32) / np.sqrt(cells / 4)
        repeat = -(-size // cells)
        found += np.repeat(np.repeat(coarse, repeat, 2), repeat, 3)[:, :, :size, :size]
    return found / found.std()


def load(folder: Path, name: str) -> bytes:
    """A network with its weights, as a serialized ONNX model."""
    proto = onnx.load(folder / f"{name}.bare", load_external_data=False)
    drawn = json.loads((folder / f"{name}.json").read_text())
    random = np.random.default_rng(7)
    for tensor in proto.graph.initializer:
        if tensor.name in drawn:
            mean, deviation = drawn[tensor.name]
            values = random.standard_normal(tuple(tensor.dims)) * deviation + mean
            tensor.raw_data = values.astype("<f4").tobytes()
    return bytes(proto.SerializeToString())


def write(folder: Path) -> None:
    """Exports every network without its large weights."""
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    for name, make in _networks().items():
        network = _with_statistics(make(), torch.from_numpy(images(8, SIZES[name], 1)))
        path = folder / f"{name}.onnx"
        torch.onnx.export(
            network,
            (torch.from_numpy(images(2, SIZES[name], 1)),),
            str(path),
            opset_version=17,
            dynamo=False,
            input_names=["input"],
            output_names=["output"],
            dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
        )
        proto = onnx.load(path)
        (folder / f"{name}.json").write_text(json.dumps(_strip(proto)))
        (folder / f"{name}.bare").write_bytes(proto.SerializeToString())
        path.unlink()
        print(name, len(proto.graph.node), "nodes")


def _strip(proto: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    drawn = {}
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > _LARGE:
            values = numpy_helper.to_array(tensor)
            drawn[tensor.name] = float(values.mean()), float(values.std())
            tensor.ClearField("raw_data")
    return drawn


def _with_statistics(network: Any, batch: Any) -> Any:
    import torch

    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    network.train()
    with torch.no_grad():
        network(batch)
    return network.eval()


def _networks() -> dict[str, Callable[[], Any]]:
    from torchvision import models

    return {
        "resnet18": models.resnet18,
        "resnet50": models.resnet50,
        "mobilenet_v2": models.mobilenet_v2,
        "efficientnet_lite0": _efficientnet_lite0,
        "efficientnet_b0": models.efficientnet_b0,
        "unet": _unet,
        "vit": lambda: models.VisionTransformer(224, 16, 6, 6, 384, 1536),
    }


def _efficientnet_lite0() -> Any:
    """EfficientNet-B0 without squeeze-and-excitation and with ReLU6, as its authors define Lite0."""
    import torch
    from torch import nn
    from torchvision import models

    class _Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    network = models.efficientnet_b0()
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "SqueezeExcitation":
                setattr(module, name, _Nothing())
            elif isinstance(child, nn.SiLU):
                setattr(module, name, nn.ReLU6(inplace=False))
    return network


def _unet(width: int = 32) -> Any:
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            convolution = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class _UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [width, 2 * width, 4 * width]
            self.down = nn.ModuleList(block(i, o) for i, o in zip([3, *sizes], sizes, strict=False))
            self.middle = block(sizes[-1], 8 * width)
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes))
            self.join = nn.ModuleList(block(2 * size, size) for size in reversed(sizes))
            self.last = nn.Conv2d(width, 8, 1)
            self.pool = nn.MaxPool2d(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            skips = []
            for down in self.down:
                skips.append(down(x))
                x = self.pool(skips[-1])
            x = self.middle(x)
            for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
                x = join(torch.cat([up(x), skip], 1))
            return self.last(x)

    return _UNet()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
