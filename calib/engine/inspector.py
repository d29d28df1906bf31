"""The layers of an engine as TensorRT's inspector tells them: name, precision, formats, ONNX nodes.

Two forms exist. Up to TensorRT 10 a layer's tensors have one field ``Format/Datatype`` and the engine lists
``Bindings``; TensorRT 11 splits the field and lists ``I/O Tensors``. Engines without detailed profiling
verbosity tell names alone.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from typing import Any

from calib.errors import EngineError

__all__ = ["EngineLayer", "EngineTensor", "inspect_engine", "parse_layers"]

_MAX_BYTES = 256 << 20

_TYPES = (
    ("INT8", r"int8|kint8"),
    ("FP16", r"fp16|half|float16"),
    ("BF16", r"bf16|bfloat16"),
    ("FP8", r"fp8"),
    ("INT4", r"int4"),
    ("FP4", r"fp4"),
    ("INT64", r"int64"),
    ("INT32", r"int32"),
    ("BOOL", r"bool"),
    ("UINT8", r"uint8"),
    ("FP32", r"fp32|float|float32"),
)
# Kernels are named by the types of data and weights: …gemm_interleaved_i8i8_i8i32_f32, …f16f16_f16f16_f16.
_TACTICS = (
    ("INT8", r"i8i8|_i8f|int8"),
    ("FP16", r"f16f16|h16|fp16|_hmma"),
    ("BF16", r"bf16bf16"),
    ("FP32", r"f32f32|tf32|sgemm|_ffma"),
)
_COPIES = ("Reformat", "NoOp")
_ONNX = re.compile(r"\[ONNX Layer: (.*?)\](?=\x1e|\[ONNX Layer|$)")


@dataclass(frozen=True)
class EngineTensor:
    """A tensor that a layer reads or writes.

    Attributes:
        name: Its name.
        shape: Its shape; −1 where it is dynamic.
        datatype: "INT8", "FP16", "FP32", "INT32", …; empty where the inspector does not tell, as for dynamic
            shapes without a context.
        layout: The format as the inspector words it.
    """

    name: str
    shape: tuple[int, ...]
    datatype: str
    layout: str


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine.

    Attributes:
        name: Its name: the names of what was fused into it.
        type: Kind of layer, such as "CaskConvolution"; empty where the engine tells names alone.
        precision: What it computes in: "INT8", "FP16", "FP32", "INT32", …; "unknown" where nothing tells.
        inputs: What it reads.
        outputs: What it writes.
        onnx_nodes: The ONNX nodes it computes.
        tactic: Name of the kernel; empty where it has none.
        groups: Groups of a convolution; 0 for other layers.
        channels: Output channels of a convolution; 0 for other layers.
    """

    name: str
    type: str
    precision: str
    inputs: tuple[EngineTensor, ...] = ()
    outputs: tuple[EngineTensor, ...] = ()
    onnx_nodes: tuple[str, ...] = ()
    tactic: str = ""
    groups: int = 0
    channels: int = 0

    @property
    def copies(self) -> bool:
        """Whether it computes nothing: it changes format, type or shape.

        >>> EngineLayer("Reformatting CopyNode for Input Tensor 0 to /conv", "Reformat", "INT8").copies
        True
        """
        return self.type in _COPIES

    @property
    def detailed(self) -> bool:
        """Whether the engine tells more of it than its name."""
        return bool(self.type)


def parse_layers(text: str | bytes, source: str = "the inspector's answer") -> tuple[EngineLayer, ...]:
    """Reads what the inspector says of an engine, of any TensorRT from 8.6 on.

    The precision of a layer with weights is the type of its weights; else that which its kernel's name
    states; else that of what it reads, and of what it writes where these disagree.

    Args:
        text: JSON, or the same compressed by gzip.
        source: Where it comes from, for messages.

    Raises:
        EngineError: It is not such an answer.
    """
    raw = _unpack(text, source)
    try:
        # TensorRT writes control characters into names.
        document = json.loads(raw, strict=False)
    except ValueError as error:
        raise EngineError(f"{source} is not the JSON of TensorRT's engine inspector: {error}.") from error
    layers = document.get("Layers") if isinstance(document, dict) else document
    if not isinstance(layers, list) or not all(isinstance(layer, (dict, str)) for layer in layers):
        raise EngineError(f"{source} has no list of layers: it is not an answer of TensorRT's inspector.")
    return tuple(_layer(layer) for layer in layers)


def inspect_engine(api: Any, engine: Any, context: Any = None) -> tuple[EngineLayer, ...]:
    """Asks an engine for its layers.

    Args:
        api: The TensorRT of the engine, a ``calib.engine.api.Api``.
        engine: A deserialized engine.
        context: An execution context with input shapes set; without one, engines with dynamic shapes tell
            no formats.

    Raises:
        EngineError: TensorRT gives no answer, or one that cannot be read.
    """
    inspector = engine.create_engine_inspector()
    if inspector is None:
        raise EngineError("TensorRT gives no inspector for this engine.")
    if context is not None:
        inspector.execution_context = context
    return parse_layers(inspector.get_engine_information(api.trt.LayerInformationFormat.JSON))


def _unpack(text: str | bytes, source: str) -> str:
    if isinstance(text, str):
        return text
    try:
        data = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
    except (OSError, EOFError) as error:
        raise EngineError(f"{source} is a damaged gzip file: {error}.") from error
    if len(data) > _MAX_BYTES:
        raise EngineError(f"{source} is larger than {_MAX_BYTES >> 20} MiB.")
    return data.decode("utf-8", errors="replace")


def _layer(raw: dict[str, Any] | str) -> EngineLayer:
    if isinstance(raw, str):
        return EngineLayer(raw, "", "unknown")
    inputs = tuple(_tensor(item) for item in raw.get("Inputs", ()))
    outputs = tuple(_tensor(item) for item in raw.get("Outputs", ()))
    tactic = str(raw.get("TacticName", ""))
    weights = raw.get("Weights")
    stated = _datatype(str(weights.get("Type", ""))) if isinstance(weights, dict) else ""
    return EngineLayer(
        name=str(raw.get("Name", "")),
        type=str(raw.get("LayerType", "")),
        precision=stated or _of_tactic(tactic) or _of_tensors(inputs, outputs) or "unknown",
        inputs=inputs,
        outputs=outputs,
        onnx_nodes=tuple(dict.fromkeys(_ONNX.findall(str(raw.get("Metadata", ""))))),
        tactic=tactic,
        groups=int(raw.get("Groups", 0) or 0),
        channels=int(raw.get("OutMaps", 0) or 0),
    )


def _tensor(raw: Any) -> EngineTensor:
    if not isinstance(raw, dict):
        return EngineTensor(str(raw), (), "", "")
    layout = str(raw.get("Format/Datatype", raw.get("Format", "")))
    stated = str(raw.get("Datatype", "")) or layout
    shape = raw.get("Dimensions", ())
    return EngineTensor(
        str(raw.get("Name", "")),
        tuple(int(size) for size in shape) if isinstance(shape, list) else (),
        _datatype(stated),
        layout,
    )


def _datatype(text: str) -> str:
    """The type that a text names.

    >>> _datatype("Thirty-two wide channel vectorized row major Int8 format"), _datatype("Half")
    ('INT8', 'FP16')
    >>> _datatype("N/A due to dynamic shapes")
    ''
    """
    for name, pattern in _TYPES:
        if re.search(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])", text.lower()):
            return name
    return ""


def _of_tactic(tactic: str) -> str:
    """The type that a kernel's name states.

    >>> _of_tactic("sm80_xmma_fprop_implicit_gemm_interleaved_i8f32_i8i32_f32_nchw")
    'INT8'
    """
    return next((name for name, pattern in _TACTICS if re.search(pattern, tactic.lower())), "")


def _of_tensors(inputs: tuple[EngineTensor, ...], outputs: tuple[EngineTensor, ...]) -> str:
    read = {tensor.datatype for tensor in inputs if tensor.datatype}
    written = {tensor.datatype for tensor in outputs if tensor.datatype}
    if len(read) == 1:
        return read.pop()
    return written.pop() if len(written) == 1 else ""
