"""Where the PyTorch network of a validation comes from, and how it is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calib.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PyTorchOptions"]


@dataclass(frozen=True)
class PyTorchOptions:
    """Options of the runner "pytorch".

    Attributes:
        module: The network that the model was exported from: a torch module, what makes one, or
            ``package.module:name``.
        weights: File of its state dict, read with ``weights_only=True``.
        arguments: Keyword arguments of what makes the network.
        device: "cuda", "cuda:1" or "cpu"; None for a GPU where torch has one.
        compile: Whether ``torch.compile`` is applied.
    """

    module: nn.Module | Callable[..., Any] | str
    weights: str | os.PathLike[str] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        if not (callable(self.module) or isinstance(self.module, str)):
            raise UsageError(
                "The network must be a torch module, what makes one, or 'package.module:name'; got "
                f"{type(self.module).__name__}."
            )

    @property
    def name(self) -> str:
        """The network, as a reader would name it."""
        if isinstance(self.module, str):
            return self.module
        named = self.module if hasattr(self.module, "__qualname__") else type(self.module)
        return f"{named.__module__}.{named.__qualname__}"

    def words(self) -> list[str]:
        """The options of ``calib validate`` that mean the same.

        >>> PyTorchOptions("net.py:Net", arguments={"width": 8, "norm": "batch"}, compile=True).words()
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

    def call(self) -> str:
        """The call that makes them; a network that is an object by its name.

        >>> PyTorchOptions("net.py:Net", weights="net.pt", device="cpu").call()
        "PyTorchOptions('net.py:Net', weights='net.pt', device='cpu')"
        """
        given = {
            "weights": None if self.weights is None else os.fspath(self.weights),
            "arguments": dict(self.arguments),
            "device": self.device,
            "compile": self.compile,
        }
        words = [repr(self.name), *(f"{name}={value!r}" for name, value in given.items() if value)]
        return f"PyTorchOptions({', '.join(words)})"
