"""Networks whose values, constants or forms trouble a conversion to float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from networks import model, node, weight
from onnx import TensorProto, helper, numpy_helper

from calib.graph import HalfModel, OnnxModel, open_session, session_options
from calib.graph.half_simulation import simulate_float16

EXTREME = np.float32(np.finfo(np.float32).min)


def in_memory(proto: onnx.ModelProto) -> OnnxModel:
    return OnnxModel(Path("m.onnx"), proto)


def run(target: OnnxModel, **feeds: np.ndarray) -> list[np.ndarray]:
    return list(open_session(target, session_options()).run(None, feeds))


def run_half(target: OnnxModel, **feeds: np.ndarray) -> list[np.ndarray]:
    """With every result rounded; ONNX Runtime itself must take the model as it is too."""
    open_session(target, session_options())
    return run(simulate_float16(target), **feeds)


def kept(result: HalfModel) -> dict[str, str]:
    return {left.node: left.reason for left in result.kept}


def weight_types(result: HalfModel) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in result.model.proto.graph.initializer}


def large_in_the_middle() -> onnx.ModelProto:
    """x [N,4] → ·W → ·300 → square → ·1e-6 → ·V → y: the square of ±5 · 300 is 2 250 000."""
    return model(
        [
            node("MatMul", ["x", "w"], ["a"], name="first"),
            node("Mul", ["a", "k"], ["b"], name="grow"),
            node("Mul", ["b", "b"], ["c"], name="square"),
            node("Mul", ["c", "s"], ["d"], name="shrink"),
            node("MatMul", ["d", "v"], ["y"], name="last"),
        ],
        {"x": ["n", 4]},
        {"y": ["n", 4]},
        {"w": np.eye(4, dtype=np.float32), "k": 300.0, "s": 1e-3, "v": weight(4, 4)},
    )


def layer_norm_chain(epsilon: float = 1e-12) -> onnx.ModelProto:
    """x [N,8] → ·W → layer normalization in nine nodes → y, as exporters write it below opset 17."""
    return model(
        [
            node("MatMul", ["x", "w"], ["h"], name="linear"),
            node("ReduceMean", ["h"], ["mean"], name="mean", axes=[-1]),
            node("Sub", ["h", "mean"], ["centred"], name="centre"),
            node("Pow", ["centred", "two"], ["squared"], name="square"),
            node("ReduceMean", ["squared"], ["variance"], name="variance", axes=[-1]),
            node("Add", ["variance", "epsilon"], ["guarded"], name="guard"),
            node("Sqrt", ["guarded"], ["deviation"], name="root"),
            node("Div", ["centred", "deviation"], ["normal"], name="divide"),
            node("Mul", ["normal", "gamma"], ["scaled"], name="scale"),
            node("Add", ["scaled", "beta"], ["y"], name="shift"),
        ],
        {"x": ["n", 8]},
        {"y": ["n", 8]},
        {
            "w": weight(8, 8),
            "two": 2.0,
            "epsilon": epsilon,
            "gamma": weight(8, seed=1),
            "beta": weight(8, seed=2),
        },
    )


def attention(mask: np.float32 = EXTREME) -> onnx.ModelProto:
    """x [N,6,8], keep [N,1,6] → q·kᵀ/√8 + (1 − keep)·mask → softmax → ·v → + x → LayerNormalization → y."""
    return model(
        [
            *(node("MatMul", ["x", f"w{name}"], [name], name=f"to_{name}") for name in "qkv"),
            node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
            node("MatMul", ["q", "kt"], ["s"], name="scores"),
            node("Div", ["s", "root"], ["t"], name="divide"),
            node("Sub", ["one", "keep"], ["drop"], name="invert"),
            node("Mul", ["drop", "mask"], ["bias"], name="mask_out"),
            node("Add", ["t", "bias"], ["u"], name="add_mask"),
            node("Softmax", ["u"], ["p"], name="softmax", axis=-1),
            node("MatMul", ["p", "v"], ["c"], name="context"),
            node("Add", ["c", "x"], ["r"], name="residual"),
            node("LayerNormalization", ["r", "gamma", "beta"], ["y"], name="norm", epsilon=1e-12),
        ],
        {"x": ["n", 6, 8], "keep": ["n", 1, 6]},
        {"y": ["n", 6, 8]},
        {
            **{f"w{name}": weight(8, 8, seed=i) for i, name in enumerate("qkv")},
            "root": 8.0**0.5,
            "one": 1.0,
            "mask": mask,
            "gamma": [1.0] * 8,
            "beta": [0.0] * 8,
        },
    )


def branches() -> onnx.ModelProto:
    """x → Relu → h; If reads h from inside and multiplies it; its result goes on through a MatMul."""

    def branch(name: str, seed: int) -> onnx.GraphProto:
        made = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["n", 4])
        kernel = numpy_helper.from_array(weight(4, 4, seed=seed), "kernel")
        return helper.make_graph([node("MatMul", ["h", "kernel"], [f"{name}_y"])], name, [], [made], [kernel])

    return model(
        [
            node("MatMul", ["x", "w"], ["a"], name="before"),
            node("Relu", ["a"], ["h"], name="relu"),
            node("If", ["c"], ["z"], name="if", then_branch=branch("then", 1), else_branch=branch("else", 2)),
            node("MatMul", ["z", "w"], ["p"], name="after"),
            node("Add", ["p", "h"], ["y"], name="sum"),
        ],
        {"x": ["n", 4], "c": []},
        {"y": ["n", 4]},
        {"w": weight(4, 4)},
        types={"c": TensorProto.BOOL},
    )
