"""Answers of TensorRT's inspector: those of real engines, and small ones written by hand in its words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from goldens import NETS

from calib.engine import EngineLayer, parse_layers

INT8 = "Thirty-two wide channel vectorized row major Int8 format"
FP16 = "Channel major FP16 format where channel % 8 == 0"
FP32 = "Row major linear FP32"
UNTOLD = "N/A due to dynamic shapes"


def golden_bytes(name: str) -> bytes:
    """``plain.entropy2`` and so on, as TensorRT 8.6.0 wrote it."""
    return gzip.decompress((NETS / f"{name}.layers.json.gz").read_bytes())


@lru_cache(maxsize=16)
def golden(name: str) -> tuple[EngineLayer, ...]:
    return parse_layers(golden_bytes(name), name)


def tensor(name: str, layout: str = FP32, shape: Sequence[int] = (1, 64, 8, 8)) -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": list(shape), "Format/Datatype": layout}


def layer(
    name: str,
    kind: str,
    inputs: Sequence[dict[str, Any]] = (),
    outputs: Sequence[dict[str, Any]] = (),
    onnx: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """A layer as TensorRT 8.6 tells it, ONNX nodes set apart by a control character."""
    metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in onnx)
    fields = {"Name": name, "LayerType": kind, "Inputs": list(inputs), "Outputs": list(outputs)}
    return {**fields, **more, "Metadata": metadata}


def conv(
    name: str,
    read: str,
    written: str,
    *,
    onnx: Sequence[str] = (),
    shapes: tuple[Sequence[int], Sequence[int]] = ((1, 64, 8, 8), (1, 64, 8, 8)),
    **more: Any,
) -> dict[str, Any]:
    weights = "Int8" if "Int8" in read else "Half" if "FP16" in read else "Float"
    fields = {"Weights": {"Type": weights, "Count": 9}, "OutMaps": shapes[1][1], "Groups": 1, **more}
    return layer(
        name,
        "CaskConvolution",
        [tensor(f"{name} in", read, shapes[0])],
        [tensor(f"{name} out", written, shapes[1])],
        onnx or [name],
        **fields,
    )


def pointwise(name: str, read: str, written: str, onnx: Sequence[str] = ()) -> dict[str, Any]:
    sides = [tensor(f"{name} in", read)], [tensor(f"{name} out", written)]
    return layer(name, "PointWiseV2", *sides, onnx or [name], ParameterType="PointWise")


def reformat(name: str, read: str, written: str, origin: str = "REFORMAT") -> dict[str, Any]:
    sides = [tensor(f"{name} in", read)], [tensor(f"{name} out", written)]
    return layer(name, "Reformat", *sides, ParameterType="Reformat", Origin=origin)


def answer(*layers: dict[str, Any] | str, bindings: Sequence[str] = ("x", "y")) -> str:
    """The JSON, its control characters raw as TensorRT writes them."""
    text = json.dumps({"Layers": list(layers), "Bindings": list(bindings)}, ensure_ascii=False)
    return text.replace("\\u001e", "\x1e").replace("\\u001f", "\x1f")


def parsed(*layers: dict[str, Any] | str) -> tuple[EngineLayer, ...]:
    return parse_layers(answer(*layers))
