"""PyTorch's own answer for each layer of ``layer_networks``; importing this needs torchvision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.ops import roi_align, roi_pool

Tensors = Mapping[str, torch.Tensor]
Round = Callable[[str, torch.Tensor], torch.Tensor]
"""Name of a tensor and its value → what a node that reads it through a pair gets."""

Reference = Callable[[Tensors, Round], torch.Tensor]


def alone(function: Callable[..., torch.Tensor], **options: Any) -> Reference:
    """The layer itself, on x with a weight and a bias."""
    return lambda t, q: function(q("x", t["x"]), t["w"], t.get("b"), **options)


def between(middle: Callable[[torch.Tensor, Tensors, Round], torch.Tensor]) -> Reference:
    """A convolution, the layer, a convolution of single pixels."""

    def network(t: Tensors, q: Round) -> torch.Tensor:
        first = F.conv2d(q("x", t["x"]), t["w"], padding=1)
        return F.conv2d(q("t", middle(first, t, q)), t["v"])

    return network


def before_gemm(middle: Callable[[torch.Tensor, Tensors, Round], torch.Tensor]) -> Reference:
    """A convolution, the layer, a fully connected layer."""

    def network(t: Tensors, q: Round) -> torch.Tensor:
        first = F.conv2d(q("x", t["x"]), t["w"], padding=1)
        return F.linear(q("t", middle(first, t, q)), t["v"])

    return network


def simply(function: Callable[..., torch.Tensor], *arguments: Any, **options: Any) -> Reference:
    """A layer between convolutions that asks for nothing else."""
    return between(lambda c, t, q: function(c, *arguments, **options))


def unpooled(c: torch.Tensor, t: Tensors, q: Round) -> torch.Tensor:
    values, places = F.max_pool2d(c, 2, return_indices=True)
    return F.max_unpool2d(values, places, 2)


def space_to_depth(c: torch.Tensor, t: Tensors, q: Round) -> torch.Tensor:
    """Blocks first, channels last, where pixel_unshuffle has them the other way round."""
    n, channels, height, width = c.shape
    cut = c.reshape(n, channels, height // 2, 2, width // 2, 2)
    return cut.permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * channels, height // 2, width // 2)


def normalized(t: Tensors, x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, t["m"], t["d"], t["s"], t["o"])


def attention(t: Tensors, q: Round) -> torch.Tensor:
    x = q("x", t["x"])
    mixed = F.scaled_dot_product_attention(x @ t["wq"], x @ t["wk"], t["x"], scale=1.0)
    return q("t", mixed) @ t["v"]


def excited(c: torch.Tensor, t: Tensors, q: Round) -> torch.Tensor:
    return c * torch.sigmoid(F.conv2d(q("a", F.adaptive_avg_pool2d(c, 1)), t["g"]))


def pyramid_of_bins(c: torch.Tensor, t: Tensors, q: Round) -> torch.Tensor:
    once = q("c", c)
    return torch.cat([F.adaptive_max_pool2d(once, bins).flatten(1) for bins in (1, 2, 4)], 1)


def pyramid_in_space(c: torch.Tensor, t: Tensors, q: Round) -> torch.Tensor:
    once = q("c", c)
    return torch.cat([once, *(F.max_pool2d(once, size, 1, size // 2) for size in (3, 5, 7))], 1)


def pooled(**options: Any) -> Reference:
    """An average pooling, which reads its input through a pair."""
    return between(lambda c, t, q: F.avg_pool2d(q("c", c), **options))


def recurrent(kind: type[nn.RNNBase], order: tuple[int, ...]) -> Reference:
    """PyTorch's gates in ONNX's order: where each of PyTorch's is found."""

    def network(t: Tensors, q: Round) -> torch.Tensor:
        module = kind(8, 8)
        first, second = t["b"][0].chunk(2)
        values = {
            "weight_ih_l0": t["w"][0],
            "weight_hh_l0": t["r"][0],
            "bias_ih_l0": first,
            "bias_hh_l0": second,
        }
        module.load_state_dict(
            {name: torch.cat([value.chunk(len(order))[i] for i in order]) for name, value in values.items()}
        )
        return q("t", module(t["x"])[0]) @ t["v"]

    return network


REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {
        "convolution, 1D": alone(F.conv1d, padding=1),
        "convolution": alone(F.conv2d, padding=1),
        "convolution, 3D": alone(F.conv3d),
        "convolution, 1x1": alone(F.conv2d),
        "convolution, dilated": alone(F.conv2d, padding=2, dilation=2),
        "convolution, strided, padded on one side": lambda t, q: F.conv2d(
            F.pad(q("x", t["x"]), (0, 1, 0, 1)), t["w"], stride=2
        ),
        "convolution, grouped": alone(F.conv2d, padding=1, groups=2),
        "convolution, groups too thin for INT8": between(
            lambda c, t, q: F.conv2d(c, t["g"], padding=1, groups=4)
        ),
        "depthwise": alone(F.conv2d, padding=1, groups=8),
        "depthwise, two outputs a channel": between(lambda c, t, q: F.conv2d(c, t["g"], padding=1, groups=8)),
        "separable": between(lambda c, t, q: F.conv2d(q("c", c), t["g"], padding=1, groups=8)),
        "transposed": alone(F.conv_transpose2d, stride=2),
        "transposed, 1D": alone(F.conv_transpose1d, stride=2, padding=1),
        "transposed, with output padding": alone(F.conv_transpose2d, stride=2, padding=1, output_padding=1),
        "transposed, grouped": alone(F.conv_transpose2d, stride=2, groups=2),
        "max pooling": simply(F.max_pool2d, 2),
        "max pooling, rounded up": simply(F.max_pool2d, 3, 2, ceil_mode=True),
        "max pooling, padded": simply(F.max_pool2d, 3, 1, 1),
        "max pooling, dilated": simply(F.max_pool2d, 3, 1, 1, 2),
        "average pooling": pooled(kernel_size=3, stride=2),
        "average pooling, padding counted": pooled(kernel_size=3, stride=1, padding=1),
        "average pooling, padding not counted": pooled(
            kernel_size=3, stride=1, padding=1, count_include_pad=False
        ),
        "average pooling, rounded up": pooled(kernel_size=3, stride=2, ceil_mode=True),
        "Lp pooling": between(lambda c, t, q: (F.avg_pool2d(c**2, 2) * 4).sqrt()),
        "global average pooling": before_gemm(lambda c, t, q: F.adaptive_avg_pool2d(q("c", c), 1).flatten(1)),
        "global average pooling, as a mean": before_gemm(lambda c, t, q: q("c", c).mean((2, 3))),
        "global max pooling": before_gemm(lambda c, t, q: F.adaptive_max_pool2d(c, 1).flatten(1)),
        "spatial pyramid pooling": between(pyramid_in_space),
        "spatial pyramid pooling, bins": before_gemm(pyramid_of_bins),
        "max unpooling": between(unpooled),
        "fully connected": alone(F.linear),
        "fully connected, weight not transposed": lambda t, q: q("x", t["x"]) @ t["w"] + t["b"],
        "fully connected, scaled": lambda t, q: 0.5 * F.linear(q("x", t["x"]), t["w"]) + 2 * t["b"],
        "matrix product": lambda t, q: q("x", t["x"]) @ t["w"],
        "batch norm alone": lambda t, q: F.conv2d(q("t", normalized(t, t["x"])), t["v"]),
        "batch norm after a convolution": between(lambda c, t, q: F.relu(normalized(t, c))),
        "instance norm": between(lambda c, t, q: F.instance_norm(c, weight=t["s"], bias=t["o"])),
        "layer norm": lambda t, q: q("t", F.layer_norm(t["x"], (8,), t["s"], t["o"])) @ t["v"],
        "dropout": simply(F.dropout, 0.5, training=False),
        "flatten": before_gemm(lambda c, t, q: torch.flatten(c, 1)),
        "softmax": lambda t, q: F.softmax(F.linear(q("x", t["x"]), t["w"]), -1),
        "RoI align": between(
            lambda c, t, q: roi_align(
                c, [t["rois"], *[t["rois"][:0]] * (len(c) - 1)], 4, 1.0, 2, aligned=True
            )
        ),
        "RoI pooling": between(lambda c, t, q: roi_pool(c, t["rois"], 2)),
        "upsampling, nearest": simply(F.interpolate, scale_factor=2.0, mode="nearest"),
        "upsampling, linear": simply(F.interpolate, scale_factor=2.0, mode="bilinear"),
        "upsampling, linear, corners aligned": simply(
            F.interpolate, scale_factor=2.0, mode="bilinear", align_corners=True
        ),
        "upsampling, cubic": simply(F.interpolate, scale_factor=2.0, mode="bicubic"),
        "upsampling, of opset 9": simply(F.interpolate, scale_factor=2.0, mode="nearest"),
        "pixel shuffle": simply(F.pixel_shuffle, 2),
        "pixel shuffle, spelled out": simply(F.pixel_shuffle, 2),
        "space to depth": between(space_to_depth),
        "relu": simply(F.relu),
        "relu6": simply(F.relu6),
        "leaky relu": simply(F.leaky_relu, 0.1),
        "PRelu": between(lambda c, t, q: F.prelu(c, t["slope"].flatten())),
        "ELU": simply(F.elu),
        "SiLU": simply(F.silu),
        "hard swish": simply(F.hardswish),
        "residual sum": lambda t, q: F.relu(F.conv2d(q("x", t["x"]), t["w"], padding=1) + q("x", t["x"])),
        "concatenation": lambda t, q: F.conv2d(
            q("t", torch.cat([F.conv2d(q("x", t["x"]), t["w"], padding=1), q("x", t["x"])], 1)), t["v"]
        ),
        "squeeze and excitation": between(excited),
        "padding, reflected": simply(F.pad, (1, 1, 1, 1), mode="reflect"),
        "attention": attention,
        # ONNX: input, output, forget, cell; and update, reset, hidden.
        "LSTM": recurrent(nn.LSTM, (0, 2, 3, 1)),
        "GRU": recurrent(nn.GRU, (1, 0, 2)),
    }
)
