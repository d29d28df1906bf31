"""What every runner does: one protocol for ONNX Runtime, TensorRT and PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from typing_extensions import Self

from calib.data import Array

__all__ = ["RecordedRunner", "Runner"]


class Runner(Protocol):
    """Runs one model in one precision; a context manager that frees what it took.

    Attributes:
        name: The software that runs the model: "onnxruntime", "tensorrt", "pytorch".
        precision: "fp32", "fp16" or "int8".
        clock: How ``time_ms`` measures, for reports: "host clock around a synchronous call".
        note: What a reader of its figures must know, such as that they are a CPU simulation; may be empty.
        output_names: The model's outputs, in the model's order.
    """

    name: str
    precision: str
    clock: str
    note: str
    output_names: tuple[str, ...]

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch.

        Args:
            feeds: One array for each model input, batch axis first.

        Returns:
            One array for each output. The caller owns them: a later call does not change them.
        """
        ...

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        """Runs one batch and returns how long it took, in milliseconds, when the result is complete."""
        ...


class RecordedRunner(Runner, Protocol):
    """A runner with what results keep of it.

    Attributes:
        simulated: True where the arithmetic of the precision is simulated in float.
        model_bytes: Size of the model file, engine or weights.
    """

    simulated: bool
    model_bytes: int

    @property
    def place(self) -> str:
        """What it runs on: the GPU's name, or "CPU"."""
        ...

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU, and ``time_ms`` is measured by the GPU's own events."""
        ...

    @property
    def session_options(self) -> dict[str, str]:
        """Every setting that can change a figure, as text."""
        ...
