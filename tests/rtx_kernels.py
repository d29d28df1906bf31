"""The kernels of an engine as TensorRT-RTX's builder lists them, which needs no GPU."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from calib.engine.api import load_api
from calib.graph import OnnxModel

_BYTES = {"Float": 4, "Half": 2, "Int8": 1, "Int32": 4, "Int64": 8, "Bool": 1}
_LINE = re.compile(r"Name: (?P<name>.+?), LayerType: (?P<kind>\w+), Inputs: (?P<rest>.*)")
_TENSOR = re.compile(r"Dimensions: \[([\d,]*)\][^}]*?Datatype: (\w+)")


@dataclass(frozen=True)
class Kernel:
    """A kernel, and the bytes of what it reads and writes, by type."""

    name: str
    kind: str
    bytes_of: dict[str, int]


def kernels(model: OnnxModel, batch: int) -> list[Kernel]:
    """Builds a model strongly typed for one batch size, and reads the builder's list."""
    trt = load_api("tensorrt_rtx").trt
    lines: list[str] = []

    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            lines.append(message)

    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    assert parser.parse(model.to_bytes()), lines
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        entry = network.get_input(index)
        shape = (batch, *tuple(entry.shape)[1:])
        profile.set_shape(entry.name, shape, shape, shape)
    config.add_optimization_profile(profile)
    assert builder.build_serialized_network(network, config) is not None, lines
    (listed,) = (line for line in lines if line.startswith("Layers:"))
    return [_kernel(match) for line in listed.split("\n") if (match := _LINE.match(line))]


def _kernel(line: re.Match[str]) -> Kernel:
    found: dict[str, int] = {}
    for sizes, kind in _TENSOR.findall(line["rest"]):
        count = math.prod(map(int, sizes.split(","))) if sizes else 1
        found[kind] = found.get(kind, 0) + count * _BYTES[kind]
    return Kernel(line["name"], line["kind"], found)
