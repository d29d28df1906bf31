"""The names that TensorRT gives to layers and formats, taken apart."""

from __future__ import annotations

import re

__all__ = ["fused_names", "is_copy_name", "metadata_nodes", "profile_of", "served_names", "short_format"]

_HELPER = re.compile(r"\(Unnamed Layer\* \d+\)(?: \[[^\]]*\])?(?:_output)?")
_ADDED = re.compile(r"^(?:reshape_(?:before|after)|(?:copied_)?squeeze_after|unsqueeze_node_after)_")
_SERVED = re.compile(r"(?:^| )reshape_(?:before|after)_(\S+)")
_ONNX = re.compile(r"\[ONNX Layer: (.*?)\](?=[\x1e\x1f+]|\s*\[ONNX Layer|\s*$)")
_PROFILE = re.compile(r"\[profile (\d+)\]")
_SYNCHRONIZING = r"\[trainStation\d+\]$|\[DevicetoShapeHostCopy\]$|\[ShapeHostToDeviceCopy\]$"
_COPY_NAMES = re.compile(rf"^Reformatting CopyNode | copy$|{_SYNCHRONIZING}")
_WIDTHS = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}


def is_copy_name(name: str) -> bool:
    """Whether a layer's name alone tells that it computes nothing.

    >>> is_copy_name("Reformatting CopyNode for Input Tensor 0 to conv1"), is_copy_name("conv1 + relu1")
    (True, False)
    """
    return bool(_COPY_NAMES.search(name))


def profile_of(name: str) -> int:
    """The optimization profile that a layer is of; TensorRT names it from the second one on.

    >>> profile_of("conv1 [profile 2]"), profile_of("conv1")
    (2, 0)
    """
    found = _PROFILE.search(name)
    return int(found[1]) if found else 0


def fused_names(name: str) -> tuple[str, ...]:
    """What a layer was made of, by its name: ONNX nodes, and weights that were folded into it.

    Layers that TensorRT added have no name of their own and are left out. A region of Myelin names its
    ends alone, so nothing is said of it.

    >>> fused_names("conv1.weight + QuantizeLinear_7 + Conv_9 + PWN(Clip_13)")
    ('conv1.weight', 'QuantizeLinear_7', 'Conv_9', 'Clip_13')
    >>> fused_names("PWN((Unnamed Layer* 112) [ElementWise], PWN(sigmoid, mul))")
    ('sigmoid', 'mul')
    >>> fused_names("branch_a || branch_b"), fused_names("{ForeignNode[a.../b]}")
    (('branch_a', 'branch_b'), ())
    """
    if "ForeignNode" in name or is_copy_name(name):
        return ()
    bare = _PROFILE.sub("", _HELPER.sub("", name))
    parts = (part.strip() for part in re.split(r" \+ | \|\| |PWN\(|,\s|(?<=\S)\)+(?=$| |,|\))", bare))
    kept = (part.rstrip(")").strip() for part in parts)
    # Between two helpers a separator may be left, which is no name.
    named = (part for part in kept if any(char.isalnum() for char in part))
    return tuple(dict.fromkeys(part for part in named if not _ADDED.match(part)))


def served_names(name: str) -> tuple[str, ...]:
    """The nodes that a reshape of TensorRT's own is there for; they run in another layer.

    >>> served_names("/Flatten + reshape_before_/fc1/Gemm")
    ('/fc1/Gemm',)
    """
    return tuple(_SERVED.findall(name))


def metadata_nodes(metadata: str) -> tuple[str, ...]:
    r"""The ONNX nodes that a layer's metadata name, by what the parser calls them.

    TensorRT 8.6's parser writes a node's doc string behind its name, line by line.

    >>> metadata_nodes("[ONNX Layer: conv]\x1f[ONNX Layer: relu | File 'net.py', line 7 | return x[0]]")
    ('conv', 'relu')
    """
    return tuple(dict.fromkeys(told.split(" | ", 1)[0] for told in _ONNX.findall(metadata)))


def short_format(text: str) -> str:
    """A format in the words of ``trt.TensorFormat``; empty where TensorRT tells none.

    >>> short_format("Thirty-two wide channel vectorized row major Int8 format")
    'CHW32'
    >>> short_format("Channel major FP16 format where channel % 8 == 0")
    'HWC8'
    >>> short_format("Row major linear FP32 format (kLINEAR)"), short_format("N/A due to dynamic shapes")
    ('LINEAR', '')
    """
    named = re.search(r"\(k([A-Z0-9_]+)\)", text)
    if named:
        return named[1]
    lowered = text.lower()
    width = re.match(r"([a-z-]+) wide channel", lowered)
    if width and width[1] in _WIDTHS:
        return f"CHW{_WIDTHS[width[1]]}"
    if lowered.startswith("channel major"):
        packed = re.search(r"channel % (\d+)", lowered)
        return f"HWC{packed[1] if packed else ''}"
    return "LINEAR" if lowered.startswith("row major") else ""
