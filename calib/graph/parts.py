"""Parts of the INT8 arithmetic, one at a time: what a loss of accuracy comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import onnx
from onnx import helper

from calib.errors import ModelError, UsageError
from calib.graph.graph_view import label
from calib.graph.intake import OnnxModel
from calib.graph.placement import plan_placement
from calib.graph.qdq_writer import Pair, QdqWriter
from calib.graph.quantizable import quantizable
from calib.graph.targets import find_target

__all__ = ["PARTS", "Part", "quantize_part"]

Part = Literal["weights", "activations", "clipping", "rounding"]
PARTS: tuple[Part, ...] = get_args(Part)

_LOWEST, _HIGHEST = -128, 127


def quantize_part(
    model: OnnxModel, cache: Mapping[str, float], part: Part, keep_float: Sequence[str] = ()
) -> OnnxModel:
    """A model in which one part of the INT8 arithmetic alone is simulated, where ``quantize_model`` puts it.

    Args:
        model: The float model.
        cache: Tensor → scale.
        part: "weights": weights are quantized, activations are float. "activations": the reverse.
            "clipping": activations are cut to [−128·scale, 127·scale] and not rounded; weights are float.
            "rounding": activations are rounded to multiples of their scale and not cut; weights are float.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float.

    Raises:
        ModelError: Nothing in the model can be quantized with this cache.
        UsageError: The part is unknown, or a regular expression finds nothing.
    """
    if part not in PARTS:
        raise UsageError(f"Unknown part {part!r}. Choose from {', '.join(PARTS)}.")
    source = quantizable(model, find_target("onnxruntime"))
    proto = source.proto
    plan = plan_placement(proto, cache, keep_float, half=source.half)
    if not plan.weights:
        raise ModelError(f"Nothing in {model.path} can be quantized with this cache.")
    writer = QdqWriter(proto, cache)
    if part == "weights":
        plan.activations = {}
    else:
        plan.weights = []
        writer = {"clipping": _ClipWriter, "rounding": _RoundWriter}.get(part, QdqWriter)(proto, cache)
    writer.apply(plan)
    return OnnxModel(model.path.with_suffix(f".{part}.onnx"), proto, model.external_files)


class _FloatWriter(QdqWriter):
    """Puts float nodes where Q/DQ pairs go."""

    def _activation(
        self,
        tensor: str,
        value: float,
        places: Sequence[tuple[int, int]],
        nodes: Sequence[onnx.NodeProto],
    ) -> Pair:
        scale, restored = np.float32(value), self._fresh(f"{tensor}_restored")
        made = self._arithmetic(tensor, scale, restored)
        self._before.setdefault(min(index for index, _ in places), []).extend(made)
        for index, position in places:
            nodes[index].input[position] = restored
        return Pair(tensor, float(scale), tuple(label(nodes[index]) for index, _ in places))

    def _arithmetic(self, tensor: str, scale: np.float32, restored: str) -> list[onnx.NodeProto]:
        raise NotImplementedError


class _ClipWriter(_FloatWriter):
    """Cuts activations to what INT8 holds, without rounding."""

    def _arithmetic(self, tensor: str, scale: np.float32, restored: str) -> list[onnx.NodeProto]:
        ends = [
            self._constant(f"{tensor}_{name}", np.array(scale * np.float32(step), self._type_of(tensor)))
            for name, step in (("lowest", _LOWEST), ("highest", _HIGHEST))
        ]
        return [helper.make_node("Clip", [tensor, *ends], [restored], name=self._fresh(f"{tensor}_Clip"))]


class _RoundWriter(_FloatWriter):
    """Rounds activations to multiples of their scale, half to even as QuantizeLinear, without cutting."""

    def _arithmetic(self, tensor: str, scale: np.float32, restored: str) -> list[onnx.NodeProto]:
        step = self._constant(f"{tensor}_step", np.array(scale, self._type_of(tensor)))
        divided, rounded = self._fresh(f"{tensor}_divided"), self._fresh(f"{tensor}_rounded")
        return [
            helper.make_node(op, inputs, [output], name=self._fresh(f"{tensor}_{op}"))
            for op, inputs, output in (
                ("Div", [tensor, step], divided),
                ("Round", [divided], rounded),
                ("Mul", [rounded, step], restored),
            )
        ]
