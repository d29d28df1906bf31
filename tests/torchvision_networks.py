"""The networks that people run, cut down and with random weights; importing this needs torchvision.

Random weights let noise grow from layer to layer, which training prevents. So batch norms have the
statistics of images that the network sees, and residual branches a weight of 0.1. INT8 still makes more
noise than in a trained network.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torchvision import models
from torchvision.models import detection
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.resnet import BasicBlock, Bottleneck

_BRANCH_WEIGHT = 0.1


@dataclass(frozen=True)
class Network:
    """A network as a test wants it.

    Attributes:
        make: Makes it.
        size: Height and width of its images.
        floor: The least SQNR against FP32, in dB, by min-max and by entropy.
        reason: Why no more is asked.
        detector: Whether it takes one image without a batch, and finds boxes.
        compared: Regular expression of the node names whose outputs are compared; its outputs by default.
    """

    make: Callable[[], nn.Module]
    size: int
    floor: float
    reason: str
    detector: bool = False
    compared: str = ""


def images(count: int, size: int, seed: int) -> torch.Tensor:
    """Smooth random pictures with a little noise, in 0 … 1."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 6, 6, generator=generator)
    smooth = functional.interpolate(coarse, size=(size, size), mode="bilinear")
    return (smooth + 0.1 * torch.randn(count, 3, size, size, generator=generator)).clamp(0, 1)


class UNet(nn.Module):
    """Two levels; one goes up by a transposed convolution, the other by interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bottom = _double(3, 16), _double(16, 32), _double(32, 64)
        self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.join, self.last = _double(64, 32), _double(48, 16)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        joined = self.join(torch.cat([self.up(bottom), second], 1))
        wide = functional.interpolate(joined, scale_factor=2.0, mode="bilinear")
        return self.head(self.last(torch.cat([wide, first], 1)))


def _double(inputs: int, outputs: int) -> nn.Sequential:
    def layers(first: int) -> list[nn.Module]:
        return [nn.Conv2d(first, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(*layers(inputs), *layers(outputs))


def _vgg() -> nn.Module:
    network = models.vgg11_bn(num_classes=10)
    network.avgpool = nn.AdaptiveAvgPool2d(2)
    network.classifier = nn.Sequential(
        nn.Linear(2048, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    return network


def _vit() -> nn.Module:
    network = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10
    )
    nn.init.normal_(network.heads.head.weight, std=0.1)  # zeros by default
    return network


_FEW_BOXES = {"score_thresh": 0.0, "detections_per_img": 20, "topk_candidates": 50}
_FEW_PROPOSALS = {
    **{"min_size": 64, "max_size": 64, "rpn_pre_nms_top_n_test": 50, "rpn_post_nms_top_n_test": 20},
    **{"box_score_thresh": 0.0, "box_detections_per_img": 10},
}
_NO_WEIGHTS: Mapping[str, Any] = {"weights": None, "weights_backbone": None, "num_classes": 4}


def _ssdlite() -> nn.Module:
    network = detection.ssdlite320_mobilenet_v3_large(**_NO_WEIGHTS, **_FEW_BOXES)
    network.transform.fixed_size = (128, 128)
    return network


def _mask_rcnn() -> nn.Module:
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, norm_layer=nn.BatchNorm2d)
    return detection.MaskRCNN(backbone, num_classes=4, **_FEW_PROPOSALS)


_DEEP = "many depthwise and squeeze-excite layers without training"
_RPN = r"^/rpn/head/(cls_logits|bbox_pred)(_[12])?/"
_HEADS = (
    "which boxes survive hangs on scores that random weights make all but equal; what is compared are the "
    "dense layers that scores and boxes come from"
)

NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        "resnet18": Network(lambda: models.resnet18(num_classes=10), 64, 20, "21 layers"),
        "resnet50": Network(lambda: models.resnet50(num_classes=10), 64, 19, "54 layers"),
        "vgg11": Network(_vgg, 64, 17, "no residual branches that damp noise"),
        "mobilenet_v2": Network(lambda: models.mobilenet_v2(num_classes=10), 64, 10, _DEEP),
        "mobilenet_v3": Network(lambda: models.mobilenet_v3_small(num_classes=10), 64, 14, _DEEP),
        "efficientnet": Network(lambda: models.efficientnet_b0(num_classes=10), 64, 6.5, _DEEP),
        "unet": Network(UNet, 32, 18, "random skip connections"),
        "deeplab": Network(
            lambda: models.segmentation.deeplabv3_mobilenet_v3_large(
                weights=None, weights_backbone=None, num_classes=4
            ),
            64,
            9.5,
            _DEEP,
        ),
        "vit": Network(_vit, 32, 29, "two layers"),
        "faster_rcnn": Network(
            lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(**_NO_WEIGHTS, **_FEW_PROPOSALS),
            64,
            9,
            _HEADS,
            detector=True,
            compared=_RPN,
        ),
        "mask_rcnn": Network(_mask_rcnn, 64, 21, _HEADS, detector=True, compared=_RPN),
        "ssd": Network(
            lambda: detection.ssd300_vgg16(**_NO_WEIGHTS, **_FEW_BOXES),
            300,
            21,
            _HEADS,
            detector=True,
            compared="^/head/.*/Conv",
        ),
        # The maps of the other three levels are single pixels, with next to no statistics.
        "ssdlite": Network(
            _ssdlite, 128, 9, _HEADS, detector=True, compared=r"^/head/.*/module_list\.[012]/"
        ),
    }
)


def trained_like(name: str) -> nn.Module:
    """A network with seeded weights and batch norms that know their data."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    module = network.make().eval()
    _damp(module)
    norms = [found for found in module.modules() if isinstance(found, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(_settle) for norm in norms]
    data = images(2 if network.size >= 300 else 8, network.size, seed=9)
    with torch.no_grad():
        module(list(data) if network.detector else data)
    for hook in hooks:
        hook.remove()
    return module


def _damp(module: nn.Module) -> None:
    for block in module.modules():
        if isinstance(block, BasicBlock | Bottleneck):
            last = block.bn2 if isinstance(block, BasicBlock) else block.bn3
        elif getattr(block, "use_res_connect", False):
            last = [found for found in block.modules() if isinstance(found, nn.BatchNorm2d)][-1]
        else:
            continue
        nn.init.constant_(last.weight, _BRANCH_WEIGHT)


def _settle(norm: nn.BatchNorm2d, inputs: Sequence[torch.Tensor]) -> None:
    norm.running_mean.copy_(inputs[0].mean((0, 2, 3)))
    norm.running_var.copy_(inputs[0].var((0, 2, 3), unbiased=False).clamp_min(1e-6))


def export_by_tracing(module: nn.Module, name: str, path: Path) -> Path:
    """Exports with the TorchScript exporter, which most models that people have come from."""
    network = NETWORKS[name]
    (image,) = images(1, network.size, seed=0)
    options: dict[str, Any] = {} if network.detector else {"dynamic_axes": {"images": {0: "batch"}}}
    arguments = ([image],) if network.detector else (image[None],)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, arguments, path, opset_version=17, dynamo=False, input_names=["images"], **options
        )
    return path


def feeds(name: str, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Batches for a network: a detector takes one image each."""
    network = NETWORKS[name]
    pictures = images(count, network.size, seed).numpy()
    return [{"images": picture} for picture in pictures] if network.detector else [{"images": pictures}]
