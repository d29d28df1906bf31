"""ONNX Runtime's errors in plain words: which operator, of which domain, in which node."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from calib.errors import ModelError
from calib.graph.operators import is_standard
from calib.wording import one_line

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from calib.graph.intake import OnnxModel

__all__ = ["describe_fault", "operator_without_kernel", "plain_reason"]

_UNKNOWN_OP = re.compile(r"(?P<domain>\S*):(?P<op>\w+)\(-?\d+\) is not a registered function/op")
_IN_NODE = re.compile(r'In Node, \("(?P<node>[^"]*)", (?P<op>\w+), "(?P<domain>[^"]*)"')
_NO_KERNEL = re.compile(r"implementation for (?P<op>\w+)\(\d+\) node with name '(?P<node>[^']*)'")
_PATTERNS = (
    _UNKNOWN_OP,
    _IN_NODE,
    _NO_KERNEL,
    re.compile(r"while running (?P<op>\w+) node\. Name:'(?P<node>[^']*)'"),
)


def describe_fault(error: Exception, source: OnnxModel | bytes | str | os.PathLike[str]) -> str:
    """Says in one line what ONNX Runtime found wrong, and where.

    Args:
        error: ONNX Runtime's exception.
        source: The model, to look up a node that the message does not name.

    Returns:
        Operator, domain and node, then ONNX Runtime's own words.
    """
    text = one_line(error)
    words = plain_reason(error)
    match = next(filter(None, (pattern.search(text) for pattern in _PATTERNS)), None)
    if match is None:
        return words
    place = _place(match.groupdict(), source)
    if match.re is _NO_KERNEL and (types := _odd_types(match["op"], match["node"], _proto(source))):
        return (
            f"{place} has no CPU kernel in ONNX Runtime for {types}. "
            "Export the model in float32, or cut the model before that node."
        )
    if match.re in (_UNKNOWN_OP, _NO_KERNEL):
        return (
            f"{place} has no CPU kernel in ONNX Runtime. "
            "Export the model without it, or cut the model before that node."
        )
    return f"{place}: {words}"


def operator_without_kernel(
    error: BaseException | None, source: OnnxModel | bytes | str | os.PathLike[str]
) -> tuple[str, str] | None:
    """Operator and domain of what ONNX Runtime has no kernel for; None where that is not what is wrong.

    Args:
        error: ONNX Runtime's exception.
        source: The model, to look up a domain that the message does not name.
    """
    text = one_line(error)
    if match := _UNKNOWN_OP.search(text):
        return match["op"], match["domain"]
    if match := _NO_KERNEL.search(text):
        return match["op"], _look_up(match["op"], None, match["node"], _proto(source))[0]
    if match := _IN_NODE.search(text):
        # ONNX Runtime knows the forms of a few of TensorRT's plug-ins, and each has several.
        plugin = not match["domain"] and not is_standard(_bare(match["op"]))
        if plugin or "No opset import for domain" in text:
            return match["op"], match["domain"]
    return None


def _bare(operator: str) -> NodeProto:
    from onnx import NodeProto

    return NodeProto(op_type=operator)


def _place(found: dict[str, str | None], source: OnnxModel | bytes | str | os.PathLike[str]) -> str:
    operator, domain, node = str(found["op"]), found.get("domain"), found.get("node")
    if domain is None or not node:
        domain, label = _look_up(operator, domain, node, _proto(source))
    else:
        label = repr(node)
    return f"Node {label} (operator {operator}, domain {domain or 'ai.onnx'!r})"


def _look_up(operator: str, domain: str | None, node: str | None, model: ModelProto) -> tuple[str, str]:
    """The domain and a label of the first node that fits what is known."""
    for candidate in model.graph.node:
        same_domain = domain is None or candidate.domain == domain
        if candidate.op_type == operator and same_domain and node in (None, "", candidate.name):
            outputs = ", ".join(candidate.output)
            return candidate.domain, repr(candidate.name or f"(no name) -> {outputs}")
    return domain or "", repr(node or "(in a subgraph)")


def _odd_types(operator: str, node: str, model: ModelProto) -> str:
    """Types other than float32 that the first such node computes in, by name; empty where there are none."""
    import onnx

    from calib.graph.tensor_types import infer_tensors

    floats = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    known = infer_tensors(model)[0] | {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for candidate in model.graph.node:
        if candidate.op_type == operator and candidate.name == node:
            types = {known.get(name) for name in candidate.input}
            return " and ".join(str(onnx.helper.tensor_dtype_to_np_dtype(t)) for t in floats if t in types)
    return ""


def _proto(source: OnnxModel | bytes | str | os.PathLike[str]) -> ModelProto:
    import onnx

    if isinstance(source, bytes):
        return onnx.load_model_from_string(source)
    if not isinstance(source, (str, os.PathLike)):
        return source.proto
    try:
        return onnx.load(os.fspath(source), load_external_data=False)
    except OSError as error:
        raise ModelError(f"Cannot read {source}: {error.strerror or error}.") from error


def plain_reason(error: Exception) -> str:
    """An ONNX Runtime error without its status prefix and source places."""
    text = one_line(error)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"/\S+\.(?:cc|h):\d+ (?:void )?", "", text)
    text = re.sub(r"onnxruntime::[\w:<>~ ]+\([^)]*\)(?: const)?(?: mutable)? ?", "", text)
    return text[:600].rstrip(". ") + "."
