"""Names of what PyTorch's exporter writes: outputs after what ``forward`` returns, nodes after modules.

The exporter numbers nodes and tensors through the whole network (``node_Conv_293``, ``getitem_3``), so
that one layer more changes them all. A calibration cache and ``--keep-float`` know tensors by name: here a
node is called after the module that it belongs to, as ``named_modules()`` has it, and its operator.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import onnx

from calib.errors import ModelError, UsageError
from calib.graph.subgraphs import all_graphs
from calib.wording import as_several, counted

__all__ = ["flat_outputs", "name_nodes", "output_names"]

_SCOPES = "pkg.torch.onnx.name_scopes"


def flat_outputs(returned: Any, name: str) -> list[tuple[str, Any]]:
    """The tensors that a network returned, with names: keys of dicts, numbers in tuples and lists.

    Args:
        returned: What ``forward`` returned. None is left out, as the exporter does.
        name: The network's name, for messages.

    Returns:
        Name and tensor of each, in the exporter's order; "output" for a tensor alone.

    Raises:
        ModelError: Something in it is no tensor, or there is none.
    """
    import torch
    from torch.utils import _pytree

    found: list[tuple[str, Any]] = []
    for path, leaf in _pytree.tree_flatten_with_path(returned)[0]:
        label = _label(path)
        if leaf is None:
            continue
        if not isinstance(leaf, torch.Tensor):
            raise ModelError(
                f"{name} returns {type(leaf).__qualname__} as {label!r}; ONNX outputs are tensors. "
                "Wrap the network in a module whose forward returns its tensors alone."
            )
        found.append((label, leaf))
    if not found:
        raise ModelError(f"{name} returns no tensor: there is nothing to export.")
    return found


def _label(path: Sequence[Any]) -> str:
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    if not parts:
        return "output"
    label = re.sub(r"[^\w.\-/]", "_", ".".join(parts))
    return f"output_{label}" if parts[0].isdigit() else label


def output_names(found: Sequence[str], wanted: Sequence[str] | None, inputs: Sequence[str]) -> list[str]:
    """Names of the model's outputs.

    Args:
        found: What they are called by themselves.
        wanted: Names that were asked for; None for their own.
        inputs: Names of the inputs, which outputs cannot have too.

    Raises:
        UsageError: There are as many outputs as names, or a name is taken.

    >>> output_names(["out", "x"], None, ["x"])
    ['out', 'x_out']
    """
    if not wanted:
        return [f"{name}_out" if name in inputs else name for name in found]
    wanted = as_several(wanted)
    if len(wanted) != len(found):
        raise UsageError(
            f"--output-names gives {counted(len(wanted), 'name[s]')} ({', '.join(wanted)}), but the "
            "network has "
            f"{counted(len(found), 'output[s]')}: {', '.join(found)}."
        )
    taken = sorted({name for name in wanted if list(wanted).count(name) > 1 or name in inputs})
    if taken:
        raise UsageError(
            f"--output-names: {', '.join(taken)} is taken already. Give every output its own name."
        )
    return list(wanted)


def name_nodes(proto: onnx.ModelProto, modules: Collection[str]) -> None:
    """Names nodes and tensors after modules, in place, and takes the exporter's remarks out.

    A node is ``layer1.0.conv1/Conv``, or ``…/Conv_1`` where there is another one; its outputs are
    ``layer1.0.conv1/Conv_output_0`` and so on. Inputs, outputs and weights keep their names. The remarks
    hold source lines and folders of the machine that exported.

    Args:
        proto: What the exporter wrote.
        modules: The network's modules by path, as ``named_modules()`` has them.
    """
    graph = proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    kept = {info.name for info in (*graph.input, *graph.output)} | weights
    used: Counter[str] = Counter()
    renamed: dict[str, str] = {}
    for node in graph.node:
        path = _module_path(node, weights, modules)
        base = f"{path}/{node.op_type}" if path else node.op_type
        number, used[base] = used[base], used[base] + 1
        node.name = f"{base}_{number}" if number else base
        for at, output in enumerate(node.output):
            if output and output not in kept:
                renamed[output] = f"{node.name}_output_{at}"
    _rename(graph, renamed)
    for holder in _metadata_holders(proto):
        del holder.metadata_props[:]


def _module_path(node: onnx.NodeProto, weights: set[str], modules: Collection[str]) -> str:
    """The module that a node belongs to: the one with its weight, else the one whose code it is."""
    for name in node.input:
        owner, _, kind = name.rpartition(".")
        if name in weights and kind == "weight" and owner in modules:
            return owner
    text = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), "")
    try:
        scopes = [str(scope) for scope in ast.literal_eval(text)]
    except (ValueError, SyntaxError):
        return ""
    # From the outermost module inwards, and then the operation itself.
    return next((scope for scope in reversed(scopes) if scope in modules), "")


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Renames tensors of the outermost graph wherever they are read, in subgraphs too."""
    for inner in all_graphs(graph):
        for node in inner.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        for info in (*inner.value_info, *inner.output):
            info.name = names.get(info.name, info.name)


def _metadata_holders(proto: onnx.ModelProto) -> Iterator[Any]:
    for function in proto.functions:
        yield function
        yield from function.node
    for graph in all_graphs(proto.graph):
        yield graph
        yield from (*graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output)
