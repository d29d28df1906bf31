"""Small PyTorch networks for tests; importing this needs torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Convolutions(nn.Module):
    """Convolution with batch norm, depthwise, pooling, upsampling, padding, a mean, a Gemm."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.depthwise = nn.Conv2d(width, width, 3, groups=width)
        self.head = nn.Linear(width, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.stem(images), 2)
        x = self.depthwise(functional.pad(x, (1, 1, 1, 1), mode="reflect"))
        x = functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        left, right = x.chunk(2, dim=1)
        x = torch.cat([left.sigmoid() * left, functional.mish(right)], dim=1)
        return self.head(x.mean((2, 3)))


class Perceptron(nn.Module):
    """Two Gemms; TensorRT 8.6 needs nothing of opset 18 here."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(12, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(functional.relu(self.hidden(x)))


class Upsampler(nn.Module):
    """A transposed convolution; gives a dict, a tuple in it, and a tensor of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        y = self.up(x)
        return {"masks": y, "aux": (y.amax((2, 3)), x * 2), "x": x + 1}


class Text(nn.Module):
    """An embedding of int64 ids, a mask with a default, and an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 3)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor | None = None, image: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        found = self.embedding(ids)
        if mask is not None:
            found = found * mask.unsqueeze(-1)
        scores = self.out(found.sum(1))
        return (scores,) if image is None else (scores, image * 2)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x


class FixedBatch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).reshape(2, 4)


class Decomposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x)[0]


class Folded(nn.Module):
    """Col2Im is new in opset 18."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.fold(functional.unfold(x, 3), (8, 8), 3)


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x * 1.0)


class Labelled(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, object]:
        return {"scores": x * 2, "count": 3}


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("the moon is in the way")


def needs_width(width: int) -> nn.Module:
    return Convolutions(width)


def fails() -> nn.Module:
    raise RuntimeError("no luck today")


def no_module() -> int:
    return 3


number = 7
instance = Perceptron()
