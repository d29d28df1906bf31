"""Networks whose latency `placement.py` measures: torchvision's shapes with seeded random weights.

`python benchmarks/placement_networks.py FOLDER` (needs torch and torchvision) writes each network without its
large weights, a few hundred kilobytes; `load` draws them again from a seed, so that a machine with TensorRT
needs neither torch nor hundreds of megabytes. Latency does not hang on the values; batch normalization has
statistics of structured noise, so that activations have the scale that they have in trained networks.

`python benchmarks/placement_networks.py FOLDER --case resnet50` writes what a latency report needs:
the weights (`FOLDER/resnet50.pt`; the network is `benchmarks/placement_networks.py:make` with its name),
images and their recipe (`FOLDER/noise.npz`, `FOLDER/noise.yaml`).
"""

from __future__ import annotations

import argparse
import json
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

    import calib

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in _networks().items():
        network = _with_statistics(make(), torch.from_numpy(images(8, SIZES[name], 1)))
        path = folder / f"{name}.onnx"
        size = SIZES[name]
        # Not compared with PyTorch: with random weights some of them amplify the last bits too far.
        calib.export(
            network,
            inputs=[f"input:1x3x{size}x{size}"],
            out=path,
            dynamic="batch",
            output_names=["output"],
            check=False,
        )
        proto = onnx.load(path)
        (folder / f"{name}.json").write_text(json.dumps(_strip(proto)))
        (folder / f"{name}.bare").write_bytes(proto.SerializeToString())
        path.unlink()
        print(name, len(proto.graph.node), "nodes")


def make(name: str) -> Any:
    """A network with random weights that have not been drawn from a seed."""
    return _networks()[name]()


def write_case(folder: Path, name: str) -> None:
    """Writes the weights of one network, images, and their recipe."""
    import torch

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    size = SIZES[name]
    network = _with_statistics(make(name), torch.from_numpy(images(8, size, 1)))
    torch.save(network.state_dict(), folder / f"{name}.pt")
    np.savez(folder / "noise.npz", input=images(96, size, 3))
    (folder / "noise.yaml").write_text(
        "schema: 1\nname: structured-noise\nsource: {kind: arrays, path: noise.npz}\n"
        "calibration: {samples: 32}\n"
    )


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
        "vit": _vit,
    }


def _vit() -> Any:
    """A small vision transformer; torchvision starts its last layer with zeros, which would hide errors."""
    import torch
    from torchvision import models

    network = models.VisionTransformer(224, 16, 6, 6, 384, 1536)
    torch.nn.init.normal_(network.heads.head.weight, std=0.05)
    return network


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


def main() -> None:
    """Writes all networks for ``placement.py``, or what a report of one needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", choices=SIZES)
    options = parser.parse_args()
    if options.case:
        write_case(options.folder, options.case)
    else:
        write(options.folder)


if __name__ == "__main__":
    main()
