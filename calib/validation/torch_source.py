"""Where the PyTorch network of a validation comes from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["TorchSource"]


@dataclass(frozen=True)
class TorchSource:
    """A network in PyTorch, and how it is run.

    Attributes:
        module: A torch module, what makes one, or ``package.module:name``.
        weights: File of a state dict.
        arguments: Keyword arguments of what makes the network.
        device: "cuda", "cuda:1" or "cpu"; None for a GPU where torch has one.
        compile: Whether ``torch.compile`` is applied.
    """

    module: nn.Module | Callable[..., Any] | str
    weights: str | os.PathLike[str] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    compile: bool = False

    @property
    def name(self) -> str:
        """The network, as a reader would name it."""
        if isinstance(self.module, str):
            return self.module
        named = self.module if hasattr(self.module, "__qualname__") else type(self.module)
        return f"{named.__module__}.{named.__qualname__}"

    def words(self) -> list[str]:
        """The options of ``calib validate`` that mean the same.

        >>> TorchSource("net.py:Net", arguments={"width": 8, "norm": "batch"}, compile=True).words()
        ['--torch', 'net.py:Net', '--torch-arg', 'width=8', '--torch-arg', 'norm=batch', '--torch-compile']
        """
        words = ["--torch", self.name]
        if self.weights is not None:
            words += ["--torch-weights", os.fspath(self.weights)]
        for name, value in self.arguments.items():
            words += ["--torch-arg", f"{name}={value}"]
        if self.device is not None:
            words += ["--torch-device", self.device]
        return [*words, "--torch-compile"] if self.compile else words

    def keywords(self) -> dict[str, Any]:
        """The arguments of ``calib.validate`` that mean the same."""
        given = {
            "torch_weights": None if self.weights is None else os.fspath(self.weights),
            "torch_arguments": dict(self.arguments),
            "torch_device": self.device,
            "torch_compile": self.compile,
        }
        return {"torch": self.name, **{name: value for name, value in given.items() if value}}
