"""What PyTorch's exporter says when it fails, as one message."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

__all__ = ["explain_fault"]

_NO_FORM = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.:]+)', overload='(\w+)'\)")
_STATIC = re.compile(r"tracing inferred a static shape of (\d+) for dimension (\S+?)\.$", re.MULTILINE)
_DATA_DEPENDENT = re.compile(
    r"data-dependent|DataDependent|dynamic control flow|Dynamic control flow|dynamic shape operator",
    re.DOTALL,
)
_CONSTRAINT = re.compile(r"Constraints violated|conflicts between user-specified ranges")
_COLOUR = re.compile(r"\x1b\[\d*m")
_LIMIT = 300


def explain_fault(error: BaseException, name: str) -> str:
    """What went wrong, where in the user's code, and what to do.

    Args:
        error: What the exporter raised.
        name: The network's name.
    """
    chain = list(_chain(error))
    whole = _COLOUR.sub("", "\n".join(f"{type(item).__name__}: {item}" for item in chain))
    if found := _NO_FORM.search(whole):
        return (
            f"{name} uses operator {found.group(1)}, which PyTorch's exporter cannot write as ONNX. "
            "Write that part with other operators, or leave it out of the exported module and compute it "
            "outside the model."
        )
    place = _place(chain)
    if _DATA_DEPENDENT.search(whole):
        return (
            f"{name} takes its path by the values of a tensor{place}: an if, a loop, .item() or an index "
            "that depends on the data. An ONNX model has one path: use torch.where or torch.cond there, or "
            "compute that part outside the model. torch.onnx.export(..., dynamo=False) writes the path that "
            "its example takes, which does for torchvision's detectors."
        )
    if _CONSTRAINT.search(whole):
        return f"{name}: {_constraint(whole)}"
    root = chain[-1]
    words = (_COLOUR.sub("", str(root)).strip().splitlines() or [""])[0][:_LIMIT].rstrip(".")
    return f"{name} cannot be exported{place}: {type(root).__name__}: {words}. Change the network there."


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _constraint(text: str) -> str:
    if found := _STATIC.search(text):
        return (
            f"size {found.group(1)} of {found.group(2)} is written into the network, so that it cannot be "
            "dynamic. Leave it out of --dynamic, or compute it from the input's shape."
        )
    lines = [line.strip(" -\t") for line in text.splitlines()]
    reason = next((line for line in lines if "dimension" in line or "must" in line), "")
    return f"a size of --dynamic is restricted by the network: {reason[:_LIMIT]} Leave it out of --dynamic."


def _place(chain: list[BaseException]) -> str:
    """The innermost line of code that is not of PyTorch, ONNX Script or calib."""
    import torch

    own = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")
    for error in reversed(chain):
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith(own) and not _is_library(frame.filename)
        ]
        if frames:
            line = f": {frames[-1].line}" if frames[-1].line else ""
            return f" ({frames[-1].filename}, line {frames[-1].lineno}{line})"
    return ""


def _is_library(file: str) -> bool:
    parts = Path(file).parts
    return any(part in ("onnxscript", "onnx_ir", "contextlib.py", "runpy.py") for part in parts)
