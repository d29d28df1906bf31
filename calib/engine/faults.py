"""What went wrong in TensorRT, in words: the parser's errors with node names, the builder's lines, hints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calib.engine.api import Api
from calib.graph import OnnxModel
from calib.graph.graph_view import label

__all__ = ["ParserFault", "find_hints", "no_gpu_reason", "parser_faults", "unknown_operators", "worst_lines"]

_SHOWN = 8

_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"Plugin not found|[Pp]lugin creator .*not found|No importer registered for op|Unsupported operator",
        "The parser has no such operator: load the library of the plug-in that brings it before building, "
        "replace the operator when exporting, or cut the graph before it.",
    ),
    (
        r"Could not find any implementation for node",
        "A layer has no kernel in this precision or within this memory: raise --workspace or --level; in a "
        "Q/DQ model or with a cache, keep that node float (--keep-float NAME).",
    ),
    (
        r"INT8 mode needs to be enabled",
        "The model has Q/DQ nodes: pass --precision int8 or best.",
    ),
    (
        r"no scaling factors detected|Calibration failure",
        "The builder got no scales: check the cache against the model with calib cache lint --model.",
    ),
    (
        r"Calibration table does not match|Tensor .* is bound to nullptr",
        "TensorRT ignored the calibration cache: its header must name this TensorRT and the calibrator's "
        "algorithm. calib cache convert IN OUT --tensorrt VERSION writes another header.",
    ),
    (
        r"within workspace limit|scratch space, but only",
        "A kernel needs more scratch memory than it may have: raise --workspace, or leave it out.",
    ),
    (
        r"Unable to load library: \S*nvinfer_(?:lean|dispatch|vc_plugin)",
        "Version-compatible engines hold TensorRT's lean runtime, which is a package of its own: install it "
        "in this TensorRT's version (tensorrt-lean), or leave --version-compatible out.",
    ),
    (
        r"Unable to load library: (?!\S*nvinfer_(?:lean|dispatch|vc_plugin))",
        "A library of TensorRT is not where it looks: install all of TensorRT's packages in one version, or "
        "put the folder of its libraries into LD_LIBRARY_PATH.",
    ),
    (
        r"for Turing \(SM75\)",
        "TensorRT-RTX computes this in FP16 or INT8 alone on Turing: pass --precision fp16 or best.",
    ),
    (
        r"Target GPU SM \d+ is not supported|Unsupported SM|no kernel image is available",
        "This TensorRT has no kernels for this GPU: take a release that serves it. calib doctor tells which "
        "GPUs this one does not serve.",
    ),
    (
        r"[Oo]ut of memory|OutOfMemory|insufficient memory|memory is insufficient|"
        r"GPU memory .*could not be allocated|cudaErrorMemoryAllocation|cudaError 2\b",
        "The GPU's memory is full: end other programs on it (nvidia-smi lists them), lower --workspace or "
        "the largest shape in --shapes.",
    ),
    (
        r"incompatible device",
        "The engine was built for another GPU: build it on this one, or with --hardware-compatible for all "
        "from Ampere on.",
    ),
    (
        r"[Pp]latform specific tag mismatch|target runtime platform",
        "The engine was built for another operating system or processor: build it on this one.",
    ),
    (
        r"not compatible with this version of TensorRT|[Vv]ersion tag does not match|serialization version|"
        r"older TensorRT version|magicTag",
        "The engine was built by another TensorRT, or is no engine: build it again with this one, or with "
        "--version-compatible.",
    ),
    (
        r"no optimization profile has been defined|must have optimization profile|MIN<=OPT<=MAX|"
        r"dynamic input is missing dimensions",
        "Shapes are missing or contradict each other: pass --shapes for every dynamic input.",
    ),
    (
        r"symmetric quantization|zero point .* must be all zeros",
        "TensorRT takes symmetric scales only: quantize again with zero points 0 (calib quantize does; ONNX "
        "Runtime with activation_type=QInt8 and ActivationSymmetric).",
    ),
    (
        r"input has type Int32 but must have type|Invalid Node - \S*bias\S*DequantizeLinear",
        "TensorRT takes no quantized bias: quantize again with biases in float (calib quantize does; ONNX "
        "Runtime with extra_options={'QuantizeBias': False}).",
    ),
    (
        r"Scale coefficients must all be positive|scaleAllPositive",
        "A scale is zero or negative: quantize again with calib quantize, which keeps such tensors float.",
    ),
    (
        r"Assertion \S.* failed",
        "TensorRT tripped over itself. In INT8 leave what it may have tripped over in float, transposed "
        "convolutions first (--conv-transpose float, --keep-float NAME); or try another --level, or a later "
        "TensorRT, and compare the outputs with calib validate.",
    ),
    (
        r"timing cache .* (miss|not)|ERROR_ON_TIMING_CACHE_MISS",
        "Leave --timing-cache out, or delete that file.",
    ),
)

_CUDA_FAILURE = re.compile(r"(CUDA initialization failure with error:?|cudaError) (\d+)")
# What of these only happens where CUDA does not start; the others happen to running programs too.
_NEVER_STARTED = frozenset({35, 100, 802, 803, 804, 999})
_CUDA_REASONS = {
    2: "the GPU's memory is full: end other programs on it (nvidia-smi lists them)",
    3: "the driver cannot be initialized: its modules are not loaded, or this process is a copy (a fork) of "
    "one that used CUDA",
    35: "the driver is too old for the CUDA that TensorRT was built with, or there is no driver",
    100: "no GPU is visible: none is installed, or CUDA_VISIBLE_DEVICES hides it",
    46: "the GPU is taken: another process uses it exclusively, or it is in prohibited mode",
    209: "this TensorRT has no kernels for this GPU: take a release that serves it",
    222: "the driver is too old for code that was made with a newer CUDA",
    802: "the system is not ready: NVIDIA Fabric Manager may not be running",
    803: "driver and CUDA libraries do not fit each other",
    804: "the driver is too old for the CUDA compatibility package, which works on data-centre GPUs only",
    999: "the driver is in an unknown state: reload it or restart the machine",
}


@dataclass(frozen=True)
class ParserFault:
    """One error of the ONNX parser.

    Attributes:
        code: TensorRT's error code, such as "UNSUPPORTED_NODE".
        description: What it says.
        index: The node's place in the graph; None where the error is of no node.
        node: The node's name, or that of its output.
        operator: The node's operator.
    """

    code: str
    description: str
    index: int | None = None
    node: str = ""
    operator: str = ""

    def __str__(self) -> str:
        where = f"{self.operator} {self.node!r} (node {self.index}): " if self.index is not None else ""
        return f"{where}{self.description} [{self.code}]"


def parser_faults(parser: Any, model: OnnxModel) -> tuple[ParserFault, ...]:
    """The parser's errors, with the names of nodes that old versions know by number only.

    Args:
        parser: A ``trt.OnnxParser`` that failed.
        model: What it read.
    """
    return tuple(_fault(parser.get_error(index), model) for index in range(parser.num_errors))


def _fault(error: Any, model: OnnxModel) -> ParserFault:
    code, description = str(error.code()).rpartition(".")[2], str(error.desc()).strip()
    index, nodes = int(error.node()), model.proto.graph.node
    # Since TensorRT 10 the error itself knows, also of nodes inside of functions and subgraphs, whose number
    # there may be one that the graph itself does not have.
    name = str(error.node_name() if hasattr(error, "node_name") else "")
    operator = str(error.node_operator() if hasattr(error, "node_operator") else "")
    if 0 <= index < len(nodes):
        known = nodes[index]
        return ParserFault(code, description, index, name or label(known), operator or known.op_type)
    if name or operator:
        return ParserFault(code, description, index, name, operator)
    return ParserFault(code, description)


def unknown_operators(parser: Any, model: OnnxModel) -> dict[str, int]:
    """Operators that the parser has no importer for → number of nodes.

    TensorRT 8.6 stops at the first error; this tells what else would come. Plug-ins are not asked.

    Args:
        parser: A ``trt.OnnxParser``.
        model: The model.
    """
    counts = Counter(node.op_type for node in model.proto.graph.node)
    functions = {function.name for function in model.proto.functions}
    return {
        operator: count
        for operator, count in counts.items()
        if operator not in functions and not parser.supports_operator(operator)
    }


def worst_lines(lines: Sequence[tuple[str, str]]) -> list[str]:
    """What TensorRT said last that is an error, or else a warning; each line once."""
    for severities in (("INTERNAL_ERROR", "ERROR"), ("WARNING",)):
        found = list(dict.fromkeys(text for severity, text in lines if severity in severities))
        if found:
            return found[-_SHOWN:]
    return []


def find_hints(texts: Sequence[str]) -> list[str]:
    """What to try, for every known error among some texts.

    >>> find_hints(["IBuilder: Could not find any implementation for node conv1."])[0][:35]
    'A layer has no kernel in this preci'
    >>> find_hints(["all is well"])
    []
    """
    return [hint for pattern, hint in _HINTS if any(re.search(pattern, text) for text in texts)]


def no_gpu_reason(api: Api, lines: Sequence[tuple[str, str]]) -> str | None:
    """Why CUDA did not start, in words; None where it did.

    Args:
        api: TensorRT.
        lines: What TensorRT said.
    """
    for _, text in lines:
        if match := _CUDA_FAILURE.search(text):
            code = int(match[2])
            if code not in _CUDA_REASONS or (match[1] == "cudaError" and code not in _NEVER_STARTED):
                continue
            return f"CUDA does not start for {api.title}: error {code}, {_CUDA_REASONS[code]}"
    return None
