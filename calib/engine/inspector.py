"""The layers of an engine as TensorRT's inspector tells them: name, precision, formats, ONNX nodes.

Two forms exist. Up to TensorRT 10 a layer's tensors have one field ``Format/Datatype`` and the engine lists
``Bindings``; TensorRT 11 splits the field and lists ``I/O Tensors``. Engines without detailed profiling
verbosity tell names alone.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calib.engine.layer_names import fused_names, is_copy_name, metadata_nodes, profile_of, served_names
from calib.engine.layer_types import datatype_of, kernel_types, tensor_type, type_of_tensors
from calib.errors import EngineError

__all__ = ["UNKNOWN", "EngineLayer", "EngineTensor", "inspect_engine", "parse_layers"]

UNKNOWN = "unknown"
"""Precision of a layer of which nothing is told."""

_MAX_BYTES = 256 << 20
_COPIES = ("Reformat", "NoOp", "signal", "wait")
_FREE = ("NoOp", "signal", "wait")


@dataclass(frozen=True)
class EngineTensor:
    """A tensor that a layer reads or writes.

    Attributes:
        name: Its name.
        shape: Its shape; −1 where it is dynamic.
        datatype: "INT8", "FP16", "FP32", "INT32", …; empty where the inspector does not tell, as for dynamic
            shapes without a context.
        format: The format as the inspector words it.
    """

    name: str
    shape: tuple[int, ...]
    datatype: str
    format: str


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine.

    Attributes:
        name: Its name: the names of what was fused into it.
        type: Kind of layer, such as "CaskConvolution"; empty where the engine tells names alone.
        precision: What it computes in: "INT8", "FP16", "FP32", "TF32", "INT32", …; "unknown" where nothing
            tells.
        evidence: What tells the precision: "kernel", "weights", "tensors", "neighbours"; empty if nothing.
        inputs: What it reads.
        outputs: What it writes.
        onnx_nodes: The ONNX nodes it computes.
        tactic: Name of the kernel; empty where it has none.
        writes: Type that the kernel writes; empty where its name does not tell.
        groups: Groups of a convolution; 0 for other layers.
        channels: Output channels of a convolution; 0 for other layers.
        origin: Of a reformat: "REFORMAT", "QDQ" (it quantizes or dequantizes) or "CONCAT".
        raw: Everything that the inspector says of it.
    """

    name: str
    type: str
    precision: str
    evidence: str = ""
    inputs: tuple[EngineTensor, ...] = ()
    outputs: tuple[EngineTensor, ...] = ()
    onnx_nodes: tuple[str, ...] = ()
    tactic: str = ""
    writes: str = ""
    groups: int = 0
    channels: int = 0
    origin: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def copies(self) -> bool:
        """Whether it computes nothing: it changes format, type or shape, or waits.

        >>> EngineLayer("Reformatting CopyNode for Input Tensor 0 to /conv", "Reformat", "INT8").copies
        True
        """
        return self.type in _COPIES if self.type else is_copy_name(self.name)

    @property
    def free(self) -> bool:
        """Whether it does nothing at all when the engine runs."""
        return self.type in _FREE or self.name.startswith("[trainStation")

    @property
    def detailed(self) -> bool:
        """Whether the engine tells more of it than its name."""
        return bool(self.type)


def parse_layers(
    text: str | bytes, source: str = "the inspector's answer", profile: int = 0
) -> tuple[EngineLayer, ...]:
    """Reads what the inspector says of an engine, of any TensorRT from 8.4 on.

    How the precision of a layer is told from what is known of it: ``calib.engine.layer_types``.

    Args:
        text: JSON, or the same compressed by gzip.
        source: Where it comes from, for messages.
        profile: Number of the optimization profile whose layers are wanted; engines list those of all.

    Raises:
        EngineError: It is not such an answer, or holds no layers of that profile.
    """
    try:
        # TensorRT writes control characters into names.
        document = json.loads(_unpack(text, source), strict=False)
    except (ValueError, RecursionError) as error:
        raise EngineError(
            f"{source} is not the JSON of TensorRT's engine inspector, or cut off: {error}."
        ) from error
    layers = tuple(_layer(raw) for raw in _entries(document, source, profile))
    return _by_neighbours(layers)


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
    profile = 0
    if context is not None:
        inspector.execution_context = context
        profile = max(0, int(getattr(context, "active_optimization_profile", 0) or 0))
    text = inspector.get_engine_information(api.trt.LayerInformationFormat.JSON)
    if text is None:
        raise EngineError("TensorRT's inspector says nothing of this engine.")
    return parse_layers(text, profile=profile)


def _unpack(text: str | bytes, source: str) -> str:
    if isinstance(text, str):
        return text
    try:
        data = _gunzip(text) if text[:2] == b"\x1f\x8b" else text
    except (OSError, EOFError) as error:
        raise EngineError(f"{source} is a damaged gzip file: {error}.") from error
    if len(data) > _MAX_BYTES:
        raise EngineError(f"{source} is larger than {_MAX_BYTES >> 20} MiB: no answer of an inspector.")
    return data.decode("utf-8", errors="replace")


def _gunzip(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        return stream.read(_MAX_BYTES + 1)


def _entries(document: Any, source: str, profile: int) -> list[dict[str, Any] | str]:
    layers = document.get("Layers") if isinstance(document, dict) else document
    if not isinstance(layers, list) or not all(isinstance(layer, (dict, str)) for layer in layers):
        raise EngineError(
            f"{source} has no list of layers: expected what TensorRT's inspector answers, or trtexec "
            "--exportLayerInfo writes."
        )
    if not layers:
        raise EngineError(
            f"{source} tells no layers: the engine was built with ProfilingVerbosity.NONE. Build it with "
            "calib build, or with trtexec --profilingVerbosity=detailed."
        )
    kept = [layer for layer in layers if profile_of(_name(layer)) == profile]
    if not kept:
        raise EngineError(f"{source} has no layers of optimization profile {profile}.")
    return kept


def _name(raw: dict[str, Any] | str) -> str:
    return raw if isinstance(raw, str) else str(raw.get("Name", ""))


def _layer(raw: dict[str, Any] | str) -> EngineLayer:
    name = _name(raw)
    if isinstance(raw, str):
        return EngineLayer(name, "", UNKNOWN, onnx_nodes=fused_names(name))
    inputs, outputs = _tensors(raw.get("Inputs")), _tensors(raw.get("Outputs"))
    tactic = _text(raw.get("TacticName"))
    reads, writes = kernel_types(tactic)
    precision, evidence = _precision(reads, _weights_type(raw), inputs, outputs)
    return EngineLayer(
        name=name,
        type=_text(raw.get("LayerType")) or "unnamed type",
        precision=precision or UNKNOWN,
        evidence=evidence,
        inputs=inputs,
        outputs=outputs,
        onnx_nodes=_onnx_nodes(raw, name),
        tactic=tactic,
        writes=tensor_type(writes),
        groups=_number(raw.get("Groups")),
        channels=_number(raw.get("OutMaps")),
        origin=_text(raw.get("Origin")),
        raw=raw,
    )


def _precision(
    reads: str, weights: str, inputs: Sequence[EngineTensor], outputs: Sequence[EngineTensor]
) -> tuple[str, str]:
    tensors = type_of_tensors([t.datatype for t in inputs], [t.datatype for t in outputs])
    # Weights alone may be quantized: such a layer dequantizes them and computes in the type of its data.
    if weights and inputs and inputs[0].datatype and inputs[0].datatype != weights:
        weights = ""
    for found, evidence in ((reads, "kernel"), (weights, "weights"), (tensors, "tensors")):
        if found:
            return found, evidence
    return "", ""


def _onnx_nodes(raw: dict[str, Any], name: str) -> tuple[str, ...]:
    """By the metadata, which exist from TensorRT 8.6 on; before that by the layer's name."""
    if "Metadata" not in raw:
        return fused_names(name)
    served = set(served_names(name)) - set(fused_names(name))
    return tuple(node for node in metadata_nodes(_text(raw["Metadata"])) if node not in served)


def _weights_type(raw: dict[str, Any]) -> str:
    weights = raw.get("Weights")
    return datatype_of(_text(weights.get("Type"))) if isinstance(weights, dict) else ""


def _tensors(raw: Any) -> tuple[EngineTensor, ...]:
    return tuple(_tensor(item) for item in raw) if isinstance(raw, list) else ()


def _tensor(raw: Any) -> EngineTensor:
    if not isinstance(raw, dict):
        return EngineTensor(_text(raw), (), "", "")
    layout = _text(raw.get("Format/Datatype", raw.get("Format")))
    stated = next((_text(raw[key]) for key in ("Datatype", "DataType") if key in raw), "") or layout
    shape = raw.get("Dimensions")
    return EngineTensor(
        _text(raw.get("Name")),
        tuple(_number(size) for size in shape) if isinstance(shape, list) else (),
        datatype_of(stated),
        layout,
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _by_neighbours(layers: tuple[EngineLayer, ...]) -> tuple[EngineLayer, ...]:
    """Gives layers without evidence of their own the type of the tensors between them and others."""
    known = _known_tensors(layers)
    open_layers = [layer for layer in layers if layer.detailed and not layer.evidence]
    found: dict[int, str] = {}
    while True:
        before = len(known), len(found)
        for layer in open_layers:
            _pass_on(layer, known, found)
        if (len(known), len(found)) == before:
            break
    return tuple(
        replace(layer, precision=found[id(layer)], evidence="neighbours") if id(layer) in found else layer
        for layer in layers
    )


def _known_tensors(layers: Sequence[EngineLayer]) -> dict[str, str]:
    """Tensor → type, as the kernels tell that write and read it."""
    known: dict[str, str] = {}
    for layer in layers:
        for tensor in (*layer.outputs, *layer.inputs):
            if tensor.datatype:
                known.setdefault(tensor.name, tensor.datatype)
    for layer in layers:
        for tensor in layer.outputs if layer.writes else ():
            known.setdefault(tensor.name, layer.writes)
    for layer in layers:
        if layer.evidence in ("kernel", "weights"):
            for tensor in layer.inputs[:1]:
                known.setdefault(tensor.name, tensor_type(layer.precision))
    return known


def _pass_on(layer: EngineLayer, known: dict[str, str], found: dict[int, str]) -> None:
    """A reformat may change the type; whatever else has no kernel of a known type keeps it."""
    if layer.type == "Reformat":
        return
    ends = [tensor.name for tensor in (*layer.inputs[:1], *layer.outputs[:1])]
    datatype = next((known[name] for name in ends if name in known), "")
    if datatype:
        for name in ends:
            known.setdefault(name, datatype)
        found[id(layer)] = datatype
