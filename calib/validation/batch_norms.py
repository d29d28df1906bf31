"""What a network's BatchNorms remember of its training data, against what they get now.

A BatchNorm that was not folded into its convolution holds mean and variance of its input over the training
set. Data prepared as in training give nearly the same; data that are scaled, normalised or laid out
differently do not. A network without them tells less: only whether its first convolution's outputs are of
the size of its bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from calib.data import Array
from calib.errors import ModelError
from calib.graph import OnnxModel, open_session, session_options
from calib.graph.dependence import data_dependent_outputs
from calib.graph.faults import describe_fault
from calib.graph.graph_view import label
from calib.graph.runtime import runtime_errors
from calib.graph.weights import as_array, constants

__all__ = ["FirstConv", "NormFit", "NormMoments", "NormProbe", "find_norms"]

Floats = npt.NDArray[np.float64]

_MOST = 8
_DEAD = 1e-6


@dataclass(frozen=True)
class _Norm:
    """A BatchNorm of the main graph with what it remembers."""

    name: str
    tensor: str
    mean: Floats
    var: Floats


@dataclass(frozen=True)
class NormMoments:
    """What the BatchNorms got, one row a sample.

    Attributes:
        means: For each BatchNorm the channels' means, shape [samples, channels].
        squares: For each the channels' mean squares.
    """

    means: tuple[Floats, ...]
    squares: tuple[Floats, ...]


@dataclass(frozen=True)
class NormFit:
    """How near one BatchNorm's input is to what it remembers.

    Attributes:
        name: The BatchNorm.
        z_rms: Root mean square over the channels of (mean − running mean) / √running variance.
        std_ratio: Median over the channels of √(variance / running variance).
        channels: How many channels count: those whose running variance is not next to nothing.
    """

    name: str
    z_rms: float
    std_ratio: float
    channels: int


@dataclass(frozen=True)
class FirstConv:
    """The first convolution of a network without BatchNorms.

    Attributes:
        name: The convolution.
        ratio: Root mean square over the channels of the output's standard deviation ÷ that of the bias.
    """

    name: str
    ratio: float


def find_norms(model: OnnxModel) -> tuple[_Norm, ...]:
    """BatchNorms of the main graph whose input depends on the data, in network order; at most eight.

    The first is always among them, the rest are spread over the network.
    """
    values, dependent = constants(model.proto.graph), set(data_dependent_outputs(model.proto.graph))
    dependent |= {spec.name for spec in model.inputs}
    found = [
        _Norm(
            label(node),
            node.input[0],
            as_array(values[node.input[3]]).astype(np.float64),
            as_array(values[node.input[4]]).astype(np.float64),
        )
        for node in model.proto.graph.node
        if node.op_type == "BatchNormalization"
        and node.input[0] in dependent
        and len(node.input) >= 5
        and {node.input[3], node.input[4]} <= values.keys()
    ]
    if len(found) <= _MOST:
        return tuple(found)
    chosen = np.linspace(0, len(found) - 1, _MOST).astype(np.int64)
    return tuple(found[index] for index in chosen)


class NormProbe:
    """Runs a model and looks at its BatchNorms' inputs, or its first convolution's output.

    Args:
        model: The FP32 model.
        threads: Threads inside an operator; None for one a core.

    Raises:
        ModelError: ONNX Runtime refuses the model.
    """

    def __init__(self, model: OnnxModel, threads: int | None = None) -> None:
        self._model = model
        self.norms = find_norms(model)
        self._conv = None if self.norms else _first_conv(model)
        tensors = [norm.tensor for norm in self.norms] or ([self._conv[1]] if self._conv else [])
        self._tensors = list(dict.fromkeys(tensors))
        inputs = {spec.name for spec in model.inputs}
        self._fetched = [name for name in self._tensors if name not in inputs]
        self._session: Any = None
        if self._tensors:
            self._session = open_session(
                _with_outputs(model, self._fetched), session_options(threads=threads)
            )

    def moments(self, feeds: Iterable[Mapping[str, Array]]) -> NormMoments | None:
        """Runs batches; None where there is nothing to look at.

        Raises:
            ModelError: ONNX Runtime cannot run a batch.
        """
        if self._session is None:
            return None
        means: list[list[Floats]] = [[] for _ in self._tensors]
        squares: list[list[Floats]] = [[] for _ in self._tensors]
        for batch in feeds:
            values = self._run(batch)
            for number, name in enumerate(self._tensors):
                rows = values[name].astype(np.float64)
                rows = rows.reshape(rows.shape[0], rows.shape[1], -1)
                means[number].append(rows.mean(axis=2))
                squares[number].append(np.square(rows).mean(axis=2))
        return NormMoments(tuple(map(np.concatenate, means)), tuple(map(np.concatenate, squares)))

    def _run(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        try:
            found = self._session.run(self._fetched, dict(batch)) if self._fetched else []
        except runtime_errors() as error:
            reason = describe_fault(error, self._model)
            raise ModelError(f"ONNX Runtime cannot run {self._model.path}: {reason}") from error
        return {**batch, **dict(zip(self._fetched, found, strict=True))}

    def fits(self, moments: NormMoments) -> tuple[NormFit, ...]:
        """How near each BatchNorm's input is to what it remembers."""
        rows = {name: number for number, name in enumerate(self._tensors)}
        return tuple(_fit(norm, moments, rows[norm.tensor]) for norm in self.norms)

    def distances(self, moments: NormMoments) -> Floats | None:
        """Each sample's distance from what the BatchNorms remember, shape [samples]; None without any.

        Of each channel ln(1 + KL) where KL is the Kullback-Leibler divergence of two normal
        distributions, ½·(v/V + (m − M)²/V − 1 − ln(v/V)), with m, v of the sample and M, V remembered; the
        mean over channels and BatchNorms. A single image's statistics differ from those of a training set:
        distances say something only beside each other.
        """
        if not self.norms:
            return None
        rows = {name: number for number, name in enumerate(self._tensors)}
        parts = [_divergence(norm, moments, rows[norm.tensor]) for norm in self.norms]
        distances: Floats = np.mean(parts, axis=0)
        return distances

    def first_conv(self, moments: NormMoments) -> FirstConv | None:
        """The size of the first convolution's output against its bias; None where there is none."""
        if self._conv is None:
            return None
        name, _, bias = self._conv
        mean, square = moments.means[0].mean(axis=0), moments.squares[0].mean(axis=0)
        var = np.maximum(square - np.square(mean), 0.0)
        return FirstConv(name, float(np.sqrt(var.mean() / np.square(bias).mean())))


def _alive(norm: _Norm) -> npt.NDArray[np.bool_]:
    alive: npt.NDArray[np.bool_] = norm.var > _DEAD * np.median(norm.var)
    return alive


def _fit(norm: _Norm, moments: NormMoments, row: int) -> NormFit:
    alive = _alive(norm)
    mean, square = moments.means[row].mean(axis=0), moments.squares[row].mean(axis=0)
    var = np.maximum(square - np.square(mean), 0.0)[alive]
    z = (mean - norm.mean)[alive] / np.sqrt(norm.var[alive])
    ratio = np.sqrt(var / norm.var[alive])
    return NormFit(
        norm.name, float(np.sqrt(np.mean(np.square(z)))), float(np.median(ratio)), int(alive.sum())
    )


def _divergence(norm: _Norm, moments: NormMoments, row: int) -> Floats:
    alive = _alive(norm)
    mean, square = moments.means[row][:, alive], moments.squares[row][:, alive]
    ratio = np.maximum(square - np.square(mean), 1e-12 * norm.var[alive]) / norm.var[alive]
    shift = np.square(mean - norm.mean[alive]) / norm.var[alive]
    divergence = 0.5 * (ratio + shift - 1 - np.log(ratio))
    distances: Floats = np.log1p(np.maximum(divergence, 0.0)).mean(axis=1)
    return distances


def _first_conv(model: OnnxModel) -> tuple[str, str, Floats] | None:
    """Name, output and bias of the first convolution that reads the data, if its bias says something."""
    values, dependent = constants(model.proto.graph), set(data_dependent_outputs(model.proto.graph))
    for node in model.proto.graph.node:
        if node.op_type == "Conv" and node.output[0] in dependent:
            if len(node.input) < 3 or node.input[2] not in values:
                return None
            bias = as_array(values[node.input[2]]).astype(np.float64)
            return (label(node), node.output[0], bias) if np.any(bias) else None
    return None


def _with_outputs(model: OnnxModel, names: Sequence[str]) -> OnnxModel:
    """The model with some tensors as its only outputs; ONNX Runtime finds their types."""
    proto = model.edited()
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    if not names:
        proto.graph.output.extend(model.proto.graph.output)
    return OnnxModel(model.path, proto)
