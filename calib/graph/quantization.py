"""From a float model and a calibration cache to a model with explicit Q/DQ nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.calibrators import CalibrationCache, read_sidecar
from calib.data import Array
from calib.errors import CacheError, ModelError, UsageError
from calib.files import check_writable, write_bytes
from calib.graph.cache_model import compare_names, lint_provenance
from calib.graph.intake import OnnxModel, load_model
from calib.graph.opset import raise_opset
from calib.graph.placement import LeftFloat, Plan, plan_placement
from calib.graph.weights import QuantizedWeight, as_array, constants, quantize_weight

__all__ = ["Pair", "QuantizedModel", "quantize", "quantize_model"]


@dataclass(frozen=True)
class Pair:
    """A Q/DQ pair on an activation, or a dequantized weight.

    Attributes:
        tensor: The tensor that is quantized.
        scale: Its scale; the largest of its channels for a weight.
        readers: Nodes that read it through the pair.
        weight: Whether it is a weight.
    """

    tensor: str
    scale: float
    readers: tuple[str, ...]
    weight: bool = False


@dataclass(frozen=True)
class QuantizedModel:
    """A model with Q/DQ nodes, and what was done.

    Attributes:
        model: The model.
        pairs: Every pair placed, in network order, weights included.
        left_float: Nodes that could be quantized and were not, with the reason.
        notes: What else happened, such as a raised opset.
    """

    model: OnnxModel
    pairs: tuple[Pair, ...]
    left_float: tuple[LeftFloat, ...]
    notes: tuple[str, ...] = ()

    @property
    def activations(self) -> tuple[Pair, ...]:
        """The pairs on activations."""
        return tuple(pair for pair in self.pairs if not pair.weight)


def quantize(
    model: str | os.PathLike[str] | OnnxModel,
    cache: str | os.PathLike[str] | CalibrationCache,
    *,
    out: str | os.PathLike[str] | None = None,
    keep_float: Sequence[str] = (),
    strict: bool = False,
) -> QuantizedModel:
    """Writes the scales of a calibration cache into a model as Q/DQ nodes.

    Args:
        model: The float model, or its path.
        cache: The cache, or its path.
        out: Where to write the model; None writes nothing.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float.
        strict: Refuse a cache that does not fit the model whole: entries that name nothing in it, float
            activations without an entry, other weights or another graph than it was made from.

    Returns:
        The model and what was placed; its notes say how well the cache fits.

    Raises:
        CalibError: Model or cache cannot be used, with what and why; nothing is written then.
    """
    if out is not None:
        check_writable(out)
    network = model if isinstance(model, OnnxModel) else load_model(model)
    scales = cache if isinstance(cache, CalibrationCache) else CalibrationCache.read(cache)
    if out is not None and network.path.exists() and Path(out).resolve() == network.path.resolve():
        raise UsageError(f"--out {out} is the model itself. Choose another file.")
    fit = _fit(network, scales, None if isinstance(cache, CalibrationCache) else cache)
    if strict and fit.faults:
        raise CacheError(f"The cache does not fit {network.path}. {' '.join((*fit.faults, fit.summary))}")
    result = quantize_model(network, scales, keep_float)
    if out is not None:
        write_bytes(out, result.model.to_bytes())
    return replace(result, notes=(*result.notes, fit.summary, *fit.faults))


@dataclass(frozen=True)
class _Fit:
    """How well a cache fits a model, in words."""

    summary: str
    faults: tuple[str, ...]


def _fit(model: OnnxModel, cache: CalibrationCache, path: str | os.PathLike[str] | None) -> _Fit:
    names = compare_names(cache, model)
    faults = []
    if names.only_cache:
        hints = (f"{name} (did you mean {near!r}?)" for name, near in names.nearest.items())
        listed = ", ".join([*hints, *(name for name in names.only_cache if name not in names.nearest)][:5])
        faults.append(f"Entries that name nothing in the model: {listed}.")
    if names.only_model:
        faults.append(f"Float activations without an entry: {', '.join(names.only_model[:5])}.")
    sidecar = None if path is None else read_sidecar(path)
    if sidecar is not None:
        faults += [
            finding.message[0].upper() + finding.message[1:] for finding in lint_provenance(sidecar, model)
        ]
    return _Fit(names.summary, tuple(faults))


def quantize_model(
    model: OnnxModel, cache: Mapping[str, float], keep_float: Sequence[str] = ()
) -> QuantizedModel:
    """Adds Q/DQ nodes to a model: symmetric INT8, zero points 0, weights per channel, bias in float.

    Names, types and shapes of the model's inputs and outputs stay as they are.

    Args:
        model: The float model.
        cache: Tensor → scale.
        keep_float: Regular expressions of nodes (or their outputs) that stay in float.

    Raises:
        ModelError: The model has Q/DQ nodes already, or nothing in it can be quantized.
        UsageError: A regular expression finds nothing.
    """
    if model.quantized_nodes:
        raise ModelError(
            f"{model.path} already has {model.quantized_nodes} QuantizeLinear and DequantizeLinear nodes. "
            "Give the float model that it was made from."
        )
    proto, notes = raise_opset(model)
    plan = plan_placement(proto, cache, keep_float)
    if not plan.weights:
        raise ModelError(f"Nothing in {model.path} can be quantized with this cache. {_why_nothing(plan)}")
    pairs = _Writer(proto, cache).apply(plan)
    path = model.path.with_suffix(".int8.onnx")
    result = OnnxModel(path, proto)
    _check(result)
    return QuantizedModel(result, tuple(pairs), tuple(plan.left_float), tuple(notes))


def _why_nothing(plan: Plan) -> str:
    if not plan.left_float:
        return "It has no Conv, ConvTranspose, Gemm or MatMul."
    first = plan.left_float[0]
    return f"For one, {first.op} {first.node!r}: {first.reason}. Does the cache belong to this model?"


def _check(model: OnnxModel) -> None:
    try:
        onnx.checker.check_model(model.proto)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"The quantized form of {model.path} is not valid ONNX: {error}") from error


class _Writer:
    """Puts a plan's Q/DQ nodes into a graph."""

    def __init__(self, proto: onnx.ModelProto, scales: Mapping[str, float]) -> None:
        self._graph = proto.graph
        self._scales = scales
        self._constants = constants(proto.graph)
        self._taken = _names(proto.graph)
        self._before: dict[int, list[onnx.NodeProto]] = {}

    def apply(self, plan: Plan) -> list[Pair]:
        """Adds the nodes in topological order and redirects the readers.

        Each pair stands right before the first node that reads it.
        """
        nodes = list(self._graph.node)
        pairs = [self._activation(tensor, places, nodes) for tensor, places in plan.activations.items()]
        shared: dict[tuple[str, int], list[int]] = {}
        for site in plan.weights:
            shared.setdefault((site.weight, site.axis), []).append(site.node)
        pairs += [self._weight(name, axis, users, nodes) for (name, axis), users in shared.items()]
        ordered = [node for index, node in enumerate(nodes) for node in (*self._before.get(index, ()), node)]
        del self._graph.node[:]
        self._graph.node.extend(ordered)
        self._drop_unread_weights({site.weight for site in plan.weights})
        return pairs

    def _activation(
        self, tensor: str, places: Sequence[tuple[int, int]], nodes: Sequence[onnx.NodeProto]
    ) -> Pair:
        scale = np.float32(self._scales[tensor])
        parameters = [
            self._constant(f"{tensor}_scale", np.array(scale, np.float32)),
            self._constant(f"{tensor}_zero_point", np.array(0, np.int8)),
        ]
        quantized, restored = self._fresh(f"{tensor}_quantized"), self._fresh(f"{tensor}_dequantized")
        quantize_node = helper.make_node(
            "QuantizeLinear", [tensor, *parameters], [quantized], name=self._fresh(f"{tensor}_QuantizeLinear")
        )
        restore_node = helper.make_node(
            "DequantizeLinear",
            [quantized, *parameters],
            [restored],
            name=self._fresh(f"{tensor}_DequantizeLinear"),
        )
        self._before.setdefault(min(index for index, _ in places), []).extend([quantize_node, restore_node])
        for index, position in places:
            nodes[index].input[position] = restored
        return Pair(tensor, float(scale), tuple(_label(nodes[index]) for index, _ in places))

    def _weight(self, name: str, axis: int, users: Sequence[int], nodes: Sequence[onnx.NodeProto]) -> Pair:
        weight = quantize_weight(as_array(self._constants[name]), axis)
        restored = self._fresh(f"{name}_dequantized")
        restore_node = helper.make_node(
            "DequantizeLinear",
            self._weight_parameters(name, weight),
            [restored],
            name=self._fresh(f"{name}_DequantizeLinear"),
            axis=axis,
        )
        self._before.setdefault(min(users), []).append(restore_node)
        for index in users:
            nodes[index].input[1] = restored
        return Pair(name, float(weight.scales.max()), tuple(_label(nodes[i]) for i in users), weight=True)

    def _weight_parameters(self, name: str, weight: QuantizedWeight) -> list[str]:
        return [
            self._constant(f"{name}_quantized", weight.values),
            self._constant(f"{name}_scale", weight.scales),
            self._constant(f"{name}_zero_point", np.zeros(len(weight.scales), np.int8)),
        ]

    def _constant(self, name: str, value: Array) -> str:
        unique = self._fresh(name)
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), unique))
        return unique

    def _fresh(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        return candidate

    def _drop_unread_weights(self, names: set[str]) -> None:
        """Takes away float weights, and their Constant nodes, that nothing reads any more."""
        read = {name for node in self._graph.node for name in node.input}
        read |= {output.name for output in self._graph.output}
        dead = names - read - _subgraph_reads(self._graph)
        initializers = [tensor for tensor in self._graph.initializer if tensor.name not in dead]
        del self._graph.initializer[:]
        self._graph.initializer.extend(initializers)
        inputs = [info for info in self._graph.input if info.name not in dead]
        del self._graph.input[:]
        self._graph.input.extend(inputs)
        nodes = [n for n in self._graph.node if n.op_type != "Constant" or n.output[0] not in dead]
        del self._graph.node[:]
        self._graph.node.extend(nodes)


def _subgraph_reads(graph: onnx.GraphProto) -> set[str]:
    names: set[str] = set()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                names |= {name for inner in attribute.g.node for name in inner.input}
                names |= {output.name for output in attribute.g.output} | _subgraph_reads(attribute.g)
    return names


def _names(graph: onnx.GraphProto) -> set[str]:
    """Every tensor and node name of a graph and its subgraphs."""
    names = {tensor.name for tensor in graph.initializer}
    names |= {info.name for info in (*graph.input, *graph.output, *graph.value_info)}
    for node in graph.node:
        names.update((node.name, *node.input, *node.output))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                names |= _names(attribute.g)
    return names


def _label(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), node.op_type)
