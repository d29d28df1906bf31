"""The model on ONNX Runtime's CPU provider: the FP32 reference and the simulation of FP16 and INT8."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Self

from calib.data import Array
from calib.errors import ModelError, UsageError, ValidationError
from calib.graph.faults import describe_fault
from calib.graph.runtime import open_session, runtime_errors, session_options
from calib.runners.casting import as_declared

if TYPE_CHECKING:
    from calib.graph import OnnxModel

__all__ = ["OnnxRuntimeRunner"]

_NOTES = {
    "fp32": "float32 on the CPU",
    "fp16": "FP16 simulated on the CPU: each result computed in float32 and rounded to float16",
    "int8": "INT8 simulated on the CPU: Q/DQ pairs computed in float32, the value TensorRT computes",
}
_INTEGER_NOTE = (
    "ONNX Runtime's own integer kernels on the CPU, graph optimizations on: not what TensorRT computes, and "
    "no measure of its speed"
)

_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("int8", "int16", "int32", "int64")},
    **{f"tensor({name})": name for name in ("uint8", "uint16", "uint32", "uint64")},
}


class OnnxRuntimeRunner:
    """Runs an ONNX model on the CPU, synchronously.

    Graph optimizations are off, for accuracy and latency alike, and Q/DQ pairs are never fused into
    integer kernels: their arithmetic stays in float32, which is what TensorRT computes. FP16 is simulated
    likewise, each result rounded, since ONNX Runtime itself would leave roundings out. With
    ``integer_kernels`` ONNX Runtime does what it does by itself, to see what that changes. With
    ``optimize`` ONNX Runtime's float fusions are on; figures can then move by rounding, so the
    setting is part of ``session_options``.

    Attributes:
        name: "onnxruntime".
        precision: "fp32", "fp16" or "int8".
        clock: How ``time_ms`` measures.
        on_gpu: False.
        place: "CPU".
        note: What a reader of the figures must know.
        simulated: True where the arithmetic of the precision is simulated in float.
        input_names: What must be fed; initializers are not.
        output_names: The model's outputs, in the model's order.
        model_bytes: Size of the model, with its external data.
        session_options: Every setting that can change a figure, as text.
    """

    name = "onnxruntime"
    clock = "host clock (perf_counter) around a synchronous run"
    on_gpu = False
    place = "CPU"

    def __init__(
        self,
        model: OnnxModel | bytes | str | os.PathLike[str],
        precision: str,
        *,
        threads: int | None = None,
        simulated: bool | None = None,
        note: str | None = None,
        optimize: bool = False,
        integer_kernels: bool = False,
    ) -> None:
        """Loads the model.

        Args:
            model: A loaded model, its bytes (below 2 GB), or a file, which may have external data.
            precision: What the model's arithmetic stands for: "fp32", "fp16" or "int8".
            threads: Threads within an operator; None lets ONNX Runtime take every core.
            simulated: Whether the precision is simulated in float; None: all but "fp32" are.
            note: Replaces the precision's own note.
            optimize: Turns ONNX Runtime's graph optimizations on.
            integer_kernels: Lets ONNX Runtime fuse Q/DQ pairs into its integer kernels, for comparison with
                the simulation; graph optimizations are on then.

        Raises:
            UsageError: The precision is unknown, or ``threads`` is below 1.
            ModelError: ONNX Runtime refuses the model; the message names operator, domain and node.
            MissingExtraError: onnxruntime is not installed.
        """
        if precision not in _NOTES:
            raise UsageError(f"Precision must be one of {', '.join(_NOTES)}, got {precision!r}.")
        if threads is not None and threads < 1:
            raise UsageError(f"Threads must be at least 1, got {threads}.")
        self.precision = precision
        self.simulated = precision != "fp32" and not integer_kernels if simulated is None else simulated
        usual = _INTEGER_NOTE if integer_kernels else _NOTES[precision]
        self.note = usual if note is None else note
        optimize = optimize or integer_kernels
        self._model = model
        self.model_bytes = _size(model) if isinstance(model, (bytes, str, os.PathLike)) else model.byte_size
        self.session_options = _settings(threads, optimize, integer_kernels)
        self._session: Any = open_session(
            _computed(model) if precision == "fp16" and self.simulated else model,
            session_options(optimize=optimize, threads=threads, float_qdq=not integer_kernels),
        )
        self._types = {spec.name: _dtype(spec) for spec in self._session.get_inputs()}
        self.input_names: tuple[str, ...] = tuple(self._types)
        self.output_names: tuple[str, ...] = tuple(
            _checked_output(spec) for spec in self._session.get_outputs()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = None

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch.

        Args:
            feeds: One array for each model input, batch axis first. Types are cast to those that the
                model declares where no value can be lost.

        Returns:
            One array for each output, owned by the caller.

        Raises:
            ValidationError: A feed is missing, unknown, or of a shape or type the model does not
                take; or an operator fails, which the message names.
        """
        return dict(zip(self.output_names, self._run(self._cast(feeds)), strict=True))

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        """Runs one batch and returns how long it took, in milliseconds.

        The clock stops when every output is complete in host memory. Casting the feeds to the
        declared types is not counted.

        Raises:
            ValidationError: As ``infer``.
        """
        ready = self._cast(feeds)
        start = time.perf_counter()
        self._run(ready)
        return (time.perf_counter() - start) * 1e3

    def _run(self, feeds: dict[str, Array]) -> list[Array]:
        if self._session is None:
            raise UsageError(f"The {self.precision} runner is closed: use it inside its with block.")
        try:
            outputs: list[Array] = self._session.run(list(self.output_names), feeds)
        except runtime_errors() as error:
            raise ValidationError(
                f"The {self.precision} model failed in ONNX Runtime: {describe_fault(error, self._model)}"
            ) from error
        return outputs

    def _cast(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds.keys() != self._types.keys():
            raise ValidationError(
                f"The {self.precision} model has inputs {sorted(self._types)}, "
                f"the feeds are {sorted(feeds)}. Give one array for each input."
            )
        return {name: as_declared(name, feeds[name], dtype) for name, dtype in self._types.items()}


def _settings(threads: int | None, optimize: bool, integer_kernels: bool) -> dict[str, str]:
    return {
        "provider": "CPUExecutionProvider",
        "graph_optimization_level": "ORT_ENABLE_ALL" if optimize else "ORT_DISABLE_ALL",
        "session.disable_quant_qdq": "0" if integer_kernels else "1",
        "session.intra_op.allow_spinning": "0",
        "intra_op_num_threads": "all cores" if threads is None else str(threads),
    }


def _dtype(spec: Any) -> np.dtype[Any]:
    if spec.type not in _TYPES:
        raise ModelError(
            f"Input {spec.name!r} is a {spec.type}; only tensors of {', '.join(_TYPES.values())} can be fed."
        )
    return np.dtype(_TYPES[spec.type])


def _checked_output(spec: Any) -> str:
    if spec.type not in _TYPES:
        raise ModelError(
            f"Output {spec.name!r} is a {spec.type}; only tensors of {', '.join(_TYPES.values())} "
            "can be compared. Export the model without that output."
        )
    name: str = spec.name
    return name


def _computed(model: OnnxModel | bytes | str | os.PathLike[str]) -> OnnxModel:
    """The float32 model that rounds where a float16 model does."""
    from calib.graph import OnnxModel, load_model
    from calib.graph.half_simulation import simulate_float16

    if isinstance(model, bytes):
        import onnx

        return simulate_float16(OnnxModel(Path("model.onnx"), onnx.load_model_from_string(model)))
    return simulate_float16(model if isinstance(model, OnnxModel) else load_model(model))


def _size(source: bytes | str | os.PathLike[str]) -> int:
    if isinstance(source, bytes):
        return len(source)
    import onnx
    from google.protobuf.message import DecodeError
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    path = Path(source)
    try:
        proto = onnx.load(path, load_external_data=False)
        files = {
            path.parent / ExternalDataInfo(tensor).location
            for tensor in proto.graph.initializer
            if uses_external_data(tensor)
        }
        return path.stat().st_size + sum(file.stat().st_size for file in files)
    except OSError as error:
        raise ModelError(f"Cannot read {error.filename}: {error.strerror or error}.") from error
    except DecodeError as error:
        raise ModelError(f"{path} is not an ONNX model: {error}.") from error
