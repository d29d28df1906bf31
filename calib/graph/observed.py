"""A session that hands out every float activation of a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx

from calib.data import Array
from calib.errors import ModelError, first_names
from calib.graph.dependence import data_dependent_outputs
from calib.graph.faults import describe_fault
from calib.graph.infinite_masks import infinite_masks
from calib.graph.intake import OnnxModel
from calib.graph.operators import is_standard
from calib.graph.runnable import open_runnable
from calib.graph.runtime import runtime_errors, session_options
from calib.wording import counted, inflected

__all__ = ["ObservedSession", "pooling_sources"]

_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_POOLING = ("MaxPool", "AveragePool")

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class ObservedSession:
    """Runs a model and returns its float inputs and activations by name.

    Graph optimizations are off, so that every tensor is computed as the graph says, and only tensors
    that depend on the data are observed: not weights, not constants, not integer shapes.
    ``MaxPool`` and ``AveragePool`` outputs are not observed, since TensorRT gives them their input's
    scale: ``source_of`` says whose. Tensors that minus infinity reaches from a constant, which are attention
    masks, have no range either, unless asked for.

    Args:
        model: The model.
        threads: Threads inside an operator; None for one a core.
        masks: Whether tensors that hold a mask's minus infinity are observed too.

    Attributes:
        source_of: Every tensor that gets a range, in network order → the observed tensor that it is
            taken from, which is itself but for pooling outputs.
        notes: What is not observed: what ONNX Runtime has no kernel for, such as plug-ins of TensorRT, with
            what depends on it; and masks.

    Raises:
        ModelError: ONNX Runtime cannot load the model, or nothing in it can be observed.
    """

    def __init__(self, model: OnnxModel, threads: int | None = None, *, masks: bool = False) -> None:
        self._session, part = open_runnable(model, _with_every_output, session_options(threads=threads))
        self._model = model = part.model
        types = {output.name: output.type for output in self._session.get_outputs()}
        masked = frozenset[str]() if masks else infinite_masks(model.proto.graph)
        self.source_of = _sources(model, types, masked)
        self.notes = (*part.notes, *_mask_notes(model, types, masked))
        self._order = tuple(dict.fromkeys(self.source_of.values()))
        if not self._order:
            raise ModelError(f"{model.path} has no float activations: there is nothing to calibrate.")
        inputs = {spec.name for spec in model.inputs}
        self._inputs = tuple(name for name in self._order if name in inputs)
        self._fetched = tuple(name for name in self._order if name not in inputs)
        self._types = {name: _FLOATS[types[name]] for name in self._fetched}
        self._buffers: dict[int, tuple[Shapes, dict[str, Array]]] = {}
        self._bound = True

    def run(self, feeds: Mapping[str, Array], slot: int | None = None) -> dict[str, Array]:
        """Runs one batch.

        Args:
            feeds: One array for each model input.
            slot: A set of buffers to write into, which spares fresh memory for every batch: the arrays
                hold until the next run with the same slot. None gives arrays that the caller owns.

        Returns:
            Every observed tensor in network order.

        Raises:
            ModelError: ONNX Runtime failed; its reason is given.
        """
        values = self._fetch(feeds, slot) if self._fetched else {}
        values.update({name: np.asarray(feeds[name]) for name in self._inputs})
        return {name: values[name] for name in self._order}

    def _fetch(self, feeds: Mapping[str, Array], slot: int | None) -> dict[str, Array]:
        shapes = tuple((name, array.shape) for name, array in feeds.items())
        if slot is not None and self._bound:
            known, buffers = self._buffers.get(slot, ((), {}))
            if known == shapes and self._run_bound(feeds, buffers):
                return dict(buffers)
        try:
            values = self._session.run(self._fetched, dict(feeds))
        except runtime_errors() as error:
            raise ModelError(
                f"ONNX Runtime cannot run {self._model.path}: {describe_fault(error, self._model)}"
            ) from error
        found: dict[str, Array] = dict(zip(self._fetched, values, strict=True))
        if slot is not None and self._bound:
            self._buffers[slot] = (shapes, found)
            return dict(found)
        return found

    def _run_bound(self, feeds: Mapping[str, Array], buffers: Mapping[str, Array]) -> bool:
        """Runs into buffers; False where that cannot be, as with shapes that depend on the data."""
        binding: Any = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, array in buffers.items():
            binding.bind_output(name, "cpu", 0, self._types[name], array.shape, array.ctypes.data)
        try:
            self._session.run_with_iobinding(binding)
        except runtime_errors():
            # The plain run that follows succeeds, or says what is wrong.
            self._bound = False
            self._buffers.clear()
            return False
        return True


def _sources(model: OnnxModel, types: Mapping[str, str], masked: Collection[str]) -> dict[str, str]:
    """Every float tensor that depends on the data → the tensor that its range is taken from."""
    pools = pooling_sources(model.proto)
    found = {spec.name: spec.name for spec in model.inputs if spec.dtype.kind == "f"}
    for name in data_dependent_outputs(model.proto.graph):
        source = pools.get(name, name)
        if name not in masked and (source in found or types.get(source) in _FLOATS):
            found[name] = source
    return found


def _mask_notes(model: OnnxModel, types: Mapping[str, str], masked: Collection[str]) -> tuple[str, ...]:
    names = [
        name
        for name in data_dependent_outputs(model.proto.graph)
        if name in masked and types.get(name) in _FLOATS
    ]
    if not names:
        return ()
    return (
        f"{counted(len(names), 'tensor[s] [holds|hold]')} a mask's minus infinity, which no range covers "
        f"({first_names(names)}): no scale is written, so "
        f"{inflected(len(names), '[it stays|they stay] in float')}",
    )


def _with_every_output(model: OnnxModel) -> OnnxModel:
    """The model with each node output as a graph output; ONNX Runtime finds their types."""
    proto = model.edited()
    present = {output.name for output in proto.graph.output}
    pools = pooling_sources(proto)
    names = [
        name for name in data_dependent_outputs(proto.graph) if name not in present and name not in pools
    ]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return OnnxModel(model.path, proto)


def pooling_sources(proto: onnx.ModelProto) -> dict[str, str]:
    """Output of each MaxPool and AveragePool → the tensor at the start of its chain of pools.

    A pool of what was padded with minus infinity is finite, and not the range that it reads.
    """
    sources: dict[str, str] = {}
    masked = infinite_masks(proto.graph)
    for node in proto.graph.node:
        if node.op_type in _POOLING and is_standard(node) and node.input[0] not in masked:
            sources[node.output[0]] = sources.get(node.input[0], node.input[0])
    return sources
