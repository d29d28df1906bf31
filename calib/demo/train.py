"""Trains the demonstration network and exports it: ``python -m calib.demo.train``.

A MobileNetV3-like classifier of scikit-learn's digits at 32×32: depthwise convolutions,
squeeze-excite, residual blocks, ReLU6 and hard-swish, maximum and average pooling. It is trained in
the ordinary way, on the very samples that the recipe ``digits`` calibrates with, so that no sample
of the validation dataset was ever trained on.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.data import Array, Dataset, load_recipe, open_calibration, open_validation
from calib.demo import DEMO_MODEL
from calib.errors import CalibError, ModelError, require
from calib.files import check_writable, write_bytes
from calib.progress import track

if TYPE_CHECKING:
    import onnx

__all__ = ["Training", "build_network", "ids_digest", "main", "train"]

_RECIPE = "digits"
_OPSET = 17
_IR_VERSION = 8
_INPUT = "image"
_OUTPUT = "logits"
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Training:
    """How the network is trained.

    Attributes:
        seed: Of the weights, of the order of samples and of the augmentation.
        epochs: Passes over the training samples.
        batch_size: Samples a step.
        learning_rate: Highest learning rate of the one-cycle schedule, with Adam.
    """

    seed: int = 0
    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 0.01


@dataclass(frozen=True)
class _Block:
    """One inverted residual block: 1×1 expand, 3×3 depthwise, squeeze-excite, 1×1 project."""

    inputs: int
    expanded: int
    outputs: int
    stride: int
    squeeze: bool
    activation: str


_BLOCKS = (
    _Block(12, 24, 12, 1, False, "ReLU6"),
    _Block(12, 36, 20, 2, False, "ReLU6"),
    _Block(20, 60, 20, 1, True, "Hardswish"),
    _Block(20, 60, 32, 2, True, "Hardswish"),
    _Block(32, 96, 32, 1, True, "Hardswish"),
    _Block(32, 96, 32, 1, True, "Hardswish"),
)


def build_network() -> Any:
    """The untrained network, a ``torch.nn.Module``: float32 [N, 1, 32, 32] in 0..1 to [N, 10] logits.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    nn = _torch().nn
    layers = {"stem": _convolution(1, 12, 3, activation="ReLU6"), "pool": nn.MaxPool2d(2)}
    for number, block in enumerate(_BLOCKS, start=1):
        layers[f"block{number}"] = _inverted_residual(block)
    layers["head"] = _convolution(32, 96, 1, activation="Hardswish")
    layers["average"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["classifier"] = nn.Linear(96, 10)
    return _chain(layers)


def _torch() -> Any:
    return require("torch", "torch", "Training the demonstration network")


def _module(layers: Mapping[str, Any], forward: Callable[[Any, Any], Any]) -> Any:
    """A module with named layers. Its class is made here, since torch may be imported only here."""
    module = type("Layers", (_torch().nn.Module,), {"forward": forward})()
    for name, layer in layers.items():
        module.add_module(name, layer)
    return module


def _through(module: Any, x: Any) -> Any:
    for layer in module.children():
        x = layer(x)
    return x


def _chain(layers: Mapping[str, Any]) -> Any:
    return _module(layers, _through)


def _convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: str | None = None,
) -> Any:
    nn = _torch().nn
    layers = {
        "conv": nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        "norm": nn.BatchNorm2d(outputs),
    }
    if activation:
        layers["act"] = getattr(nn, activation)()
    return _chain(layers)


def _squeeze_excite(channels: int) -> Any:
    nn = _torch().nn
    layers = {
        "average": nn.AdaptiveAvgPool2d(1),
        "reduce": nn.Conv2d(channels, channels // 4, 1),
        "act": nn.ReLU(),
        "expand": nn.Conv2d(channels // 4, channels, 1),
        "gate": nn.Hardsigmoid(),
    }
    return _module(layers, lambda module, x: x * _through(module, x))


def _inverted_residual(block: _Block) -> Any:
    wide, act = block.expanded, block.activation
    layers = {
        "expand": _convolution(block.inputs, wide, 1, activation=act),
        "depthwise": _convolution(wide, wide, 3, stride=block.stride, groups=wide, activation=act),
    }
    if block.squeeze:
        layers["excite"] = _squeeze_excite(wide)
    layers["project"] = _convolution(wide, block.outputs, 1)
    if block.stride == 1 and block.inputs == block.outputs:
        return _module(layers, lambda module, x: x + _through(module, x))
    return _chain(layers)


def train(images: Array, labels: Array, how: Training) -> Any:
    """Trains the network on one core, the same from run to run with one version of PyTorch.

    Args:
        images: float32 [N, 1, 32, 32] in 0..1.
        labels: int64 [N], the class numbers.
        how: Seed, length and step size.

    Returns:
        The trained ``torch.nn.Module``, set to evaluation.
    """
    torch = _torch()
    torch.set_num_threads(1)
    torch.manual_seed(how.seed)
    random = torch.Generator().manual_seed(how.seed)
    network = build_network()
    network.train()
    steps = len(images) // how.batch_size
    optimizer = torch.optim.Adam(network.parameters(), how.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, how.learning_rate, total_steps=how.epochs * steps
    )
    x, target = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in track(range(how.epochs), how.epochs, "Training epochs"):
        for chosen in torch.randperm(len(x), generator=random).split(how.batch_size)[:steps]:
            optimizer.zero_grad()
            logits = network(_augment(x[chosen], random))
            torch.nn.functional.cross_entropy(logits, target[chosen]).backward()
            optimizer.step()
            schedule.step()
    network.eval()
    return network


def _augment(x: Any, random: Any) -> Any:
    """Turns, scales, shears and shifts each image at random, and adds noise; in training only."""
    torch = _torch()
    functional = torch.nn.functional

    def uniform(*size: int, within: float) -> Any:
        return (2 * torch.rand(*size, generator=random) - 1) * within

    count = len(x)
    angle, shear = uniform(count, within=0.25), uniform(count, within=0.2)
    scale, shift = 1 + uniform(count, 2, within=0.15), uniform(count, 2, within=0.15)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    rows = (
        torch.stack([cosine * scale[:, 0], shear - sine, shift[:, 0]], dim=1),
        torch.stack([sine, cosine * scale[:, 1], shift[:, 1]], dim=1),
    )
    grid = functional.affine_grid(torch.stack(rows, dim=1), x.shape, align_corners=False)
    moved = functional.grid_sample(x, grid, align_corners=False)
    noise = 0.05 * torch.randn(x.shape, generator=random)
    return (moved + noise).clamp(0, 1)


def _stack(dataset: Dataset) -> tuple[Array, Array]:
    """All images and labels of a dataset with one input; this one is small."""
    batches = list(dataset.batches(256))
    images = np.concatenate([image for batch in batches for image in batch.inputs.values()])
    labels = np.concatenate([np.asarray(batch.labels, dtype=np.int64) for batch in batches])
    return images, labels


def _export(network: Any) -> onnx.ModelProto:
    """The trained network as ONNX, batch norms folded, weights named after their layers."""
    import onnx

    torch = _torch()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The newer exporter needs another package and writes opset 18 before it converts down.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            network,
            (torch.zeros(2, 1, 32, 32),),
            buffer,
            opset_version=_OPSET,
            input_names=[_INPUT],
            output_names=[_OUTPUT],
            dynamic_axes={_INPUT: {0: "batch"}, _OUTPUT: {0: "batch"}},
            dynamo=False,
        )
    model = onnx.load_from_string(buffer.getvalue())
    model.ir_version = _IR_VERSION
    model.graph.name = "digits"
    _name_weights(model)
    onnx.checker.check_model(model, full_check=True)
    return model


def _name_weights(model: onnx.ModelProto) -> None:
    """Gives folded weights the names of their layers in place of ``onnx::Conv_205``."""
    weights = {weight.name: weight for weight in model.graph.initializer}
    names: dict[str, str] = {}
    for node in model.graph.node:
        layer = ".".join(node.name.split("/")[1:-1])
        for place, kind in ((1, "weight"), (2, "bias")):
            if node.op_type in ("Conv", "Gemm") and node.input[place] in weights:
                names[node.input[place]] = f"{layer}.{kind}"
    for name, weight in weights.items():
        weight.name = names.get(name, name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _run_torch(network: Any, images: Array) -> Array:
    torch = _torch()
    with torch.no_grad():
        logits: Array = network(torch.from_numpy(images)).numpy()
    return logits


def _run_onnx(model: onnx.ModelProto, images: Array) -> Array:
    ort = require("onnxruntime", "onnxruntime", "Checking the exported network")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    logits: Array = session.run([_OUTPUT], {_INPUT: images})[0]
    return logits


def _check_same(expected: Array, got: Array) -> None:
    """Raises ModelError where the exported network answers otherwise than the trained one."""
    limit = _TOLERANCE * max(1.0, float(np.abs(expected).max()))
    worst = float(np.abs(expected - got).max())
    if not worst <= limit:
        raise ModelError(
            f"The exported network differs from the trained one by up to {worst:g} in {_OUTPUT!r}; "
            f"expected at most {limit:g}. Nothing was written."
        )


def _accuracy(logits: Array, labels: Array) -> float:
    """Share of samples whose largest logit is the label's.

    >>> _accuracy(np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([1, 1]))
    0.5
    """
    return float((logits.argmax(axis=1) == labels).mean())


def ids_digest(ids: Sequence[str]) -> str:
    """SHA-256 of some sample ids in any order, to tell later whether they were trained on."""
    return hashlib.sha256("\n".join(sorted(ids)).encode("utf-8")).hexdigest()


def _facts(how: Training, trained_on: Dataset) -> dict[str, str]:
    return {
        "trained_by": "python -m calib.demo.train",
        "dataset": f"scikit-learn digits, 32x32, recipe {_RECIPE}",
        "trained_on": f"the {len(trained_on)} calibration samples",
        "trained_on_ids_sha256": ids_digest(trained_on.ids),
        "seed": str(how.seed),
        "epochs": str(how.epochs),
        "torch": str(_torch().__version__),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, checks and writes the network, and prints its accuracy.

    Args:
        arguments: Of the command line; those of this process by default.

    Raises:
        MissingExtraError: PyTorch or ONNX Runtime is not installed.
        ModelError: The exported network answers otherwise than the trained one.
        OutputError: The file cannot be written.
    """
    import onnx

    parser = argparse.ArgumentParser(prog="python -m calib.demo.train", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEMO_MODEL, help="the ONNX file to write")
    out = check_writable(parser.parse_args(arguments).out)
    how = Training()
    recipe = load_recipe(_RECIPE)
    calibration = open_calibration(recipe)
    images, labels = _stack(calibration)
    network = train(images, labels, how)
    model = _export(network)
    held_out, truth = _stack(open_validation(recipe))
    logits = _run_onnx(model, held_out)
    _check_same(_run_torch(network, held_out), logits)
    accuracy = {"accuracy": f"{_accuracy(logits, truth):.4f}", "validation_samples": str(len(truth))}
    onnx.helper.set_model_props(model, {**_facts(how, calibration), **accuracy})
    write_bytes(out, model.SerializeToString())
    own = _accuracy(_run_onnx(model, images), labels)
    sys.stdout.write(
        f"Top-1 on the {len(labels)} calibration samples it was trained on: {own:.4f}\n"
        f"Top-1 on the {len(truth)} other samples: {accuracy['accuracy']}\n"
        f"Written: {out} ({out.stat().st_size / 1024:.0f} KiB)\n"
    )


if __name__ == "__main__":
    try:
        main()
    except CalibError as error:
        sys.exit(f"{Path(__file__).name}: {error}")
