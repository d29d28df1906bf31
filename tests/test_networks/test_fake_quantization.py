"""What the models with pairs compute, against PyTorch's own fake quantization of the same networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from decibels import decibels

pytest.importorskip("torchvision", reason="extra [torch] is not installed")

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision_networks import feeds, trained_like

from calib.calibrators import CalibrationCache
from calib.graph import OnnxModel, open_session, quantize_model, session_options


def folded(module: nn.Module) -> nn.Module:
    """Folds each batch norm into the convolution before it, as the exporter does."""
    for parent in [found for found in module.modules() if isinstance(found, nn.Sequential)]:
        for index in range(len(parent) - 1):
            convolution, norm = parent[index], parent[index + 1]
            if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                parent[index], parent[index + 1] = fuse_conv_bn_eval(convolution, norm), nn.Identity()
    return module


def fake_quantized(module: nn.Module, scales: Iterator[float]) -> nn.Module:
    """Rounds what goes into each convolution and linear layer, in the order of their calls, and weights."""

    def before(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        weight = layer.weight.detach()
        amax = weight.abs().flatten(1).max(1).values
        zeros = torch.zeros(len(amax), dtype=torch.int32)
        layer.weight.data = torch.fake_quantize_per_channel_affine(weight, amax / 127, zeros, 0, -127, 127)
        return (torch.fake_quantize_per_tensor_affine(inputs[0], next(scales), 0, -128, 127),)

    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_pre_hook(before)
    return module


@pytest.mark.parametrize("method", ["minmax", "entropy"])
@pytest.mark.parametrize(
    ("name", "float_nodes"),
    [
        ("vgg11", ["AveragePool"]),
        ("mobilenet_v2", ["Add", "AveragePool"]),
        ("mobilenet_v3", ["Add", "AveragePool"]),
        ("efficientnet", ["Add", "AveragePool"]),
    ],
)
def test_pairs_round_as_fake_quantization_does(
    name: str,
    float_nodes: list[str],
    method: str,
    exported: Callable[[str], OnnxModel],
    calibrated: Callable[[str, str], CalibrationCache],
) -> None:
    """With pairs on the inputs of convolutions and linear layers alone."""
    source, cache = exported(name), calibrated(name, method)
    (batch,) = feeds(name, 4, seed=1)
    result = quantize_model(source, cache, float_nodes, attention="int8", conv_transpose="int8")
    (ours,) = open_session(result.model, session_options(float_qdq=True)).run(None, batch)
    weighted = [node for node in source.proto.graph.node if node.op_type in ("Conv", "Gemm")]
    scales = [cache[node.input[0]] for node in weighted]
    left = iter(scales)
    with torch.no_grad():
        theirs = fake_quantized(folded(trained_like(name)), left)(torch.from_numpy(batch["images"])).numpy()
    assert next(left, None) is None
    (exact,) = open_session(source, session_options()).run(None, batch)
    # A value between two steps falls to either side by its last bit, and later layers make more of it.
    assert decibels(theirs, ours) > 20
    assert decibels(theirs, ours) > decibels(exact, ours) + 5
