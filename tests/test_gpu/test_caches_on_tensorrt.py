"""Our caches and Q/DQ models on a real TensorRT 8 … 10: ``python -m pytest -m gpu -s tests/test_gpu``.

Run by hand on a machine with an NVIDIA GPU, TensorRT below 11 and PyCUDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decibels import decibels
from goldens import NETS, digits

import calib
from calib.calibrators import CalibrationCache
from calib.data import Dataset, from_arrays, load_recipe, open_calibration, open_validation
from calib.demo import DEMO_MODEL
from calib.engine import EngineLayer, parse_layers
from calib.engine.wrong_layers import find_wrong_layers
from calib.graph import load_model, open_session, quantize_model, session_options

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

BATCH = 32
NAMES = ("demo", "plain", "res", "unet")
METHODS = {"entropy": "IInt8EntropyCalibrator2", "minmax": "IInt8MinMaxCalibrator"}


def model_path(name: str) -> Path:
    return DEMO_MODEL if name == "demo" else NETS / f"{name}.onnx"


def calibration_data(name: str) -> Dataset:
    if name == "demo":
        return open_calibration(load_recipe("digits"))
    return from_arrays("digits32", {"input": digits()["xtr"]})


def validation_images(name: str, count: int = 256) -> np.ndarray:
    if name != "demo":
        return digits()["xte"][:count]
    data = open_validation(load_recipe("digits"), samples=count)
    return np.stack([next(iter(sample.inputs.values())) for sample in data])


def calibrator(trt: Any, kind: str, batches: Iterator[np.ndarray], cache: bytes | None) -> Any:
    """TensorRT's own calibrator, fed with batches, or with a cache and nothing else."""
    import pycuda.autoprimaryctx  # noqa: F401
    import pycuda.driver as cuda

    class Calibrator(getattr(trt, kind)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.asked = 0
            self.written = b""
            self.memory = None

        def get_batch_size(self) -> int:
            return BATCH

        def get_batch(self, _names: list[str]) -> list[int] | None:
            self.asked += 1
            batch = next(batches, None)
            if batch is None:
                return None
            self.memory = cuda.to_device(np.ascontiguousarray(batch))
            return [int(self.memory)]

        def read_calibration_cache(self) -> bytes | None:
            return cache

        def write_calibration_cache(self, data: memoryview) -> None:
            self.written = bytes(data)

    return Calibrator()


def build(trt: Any, onnx: bytes, feed: Any = None) -> bytes | None:
    """An INT8 engine for batches of 32, at optimization level 0."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(onnx), [str(parser.get_error(i)) for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.INT8)
    config.clear_flag(trt.BuilderFlag.TF32)
    config.builder_optimization_level = 0
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    entry = network.get_input(0)
    shape = (BATCH, *tuple(entry.shape)[1:])
    profile.set_shape(entry.name, shape, shape, shape)
    config.add_optimization_profile(profile)
    if feed is not None:
        config.set_calibration_profile(profile)
        config.int8_calibrator = feed
    engine = builder.build_serialized_network(network, config)
    return None if engine is None else bytes(engine)


def run(trt: Any, plan: bytes, images: np.ndarray) -> tuple[np.ndarray, tuple[EngineLayer, ...]]:
    """The engine's first output for the images, and its layers."""
    import pycuda.autoprimaryctx  # noqa: F401
    import pycuda.driver as cuda

    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    source, target = engine.get_tensor_name(0), engine.get_tensor_name(1)
    outputs = []
    for start in range(0, len(images) // BATCH * BATCH, BATCH):
        batch = np.ascontiguousarray(images[start : start + BATCH], np.float32)
        context.set_input_shape(source, batch.shape)
        result = np.empty(tuple(context.get_tensor_shape(target)), np.float32)
        read, written = cuda.to_device(batch), cuda.mem_alloc(result.nbytes)
        stream = cuda.Stream()
        context.set_tensor_address(source, int(read))
        context.set_tensor_address(target, int(written))
        assert context.execute_async_v3(stream.handle)
        stream.synchronize()
        cuda.memcpy_dtoh(result, written)
        outputs.append(result)
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    layers = parse_layers(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    return np.concatenate(outputs), layers


def touching_int8(layers: Sequence[EngineLayer]) -> int:
    return sum(any(t.datatype == "INT8" for t in (*layer.inputs, *layer.outputs)) for layer in layers)


def assert_alike(layers: Sequence[EngineLayer], agreement: float) -> None:
    """8.6.0 chooses wrong kernels in some builds, which calib.build does again; this is the bare builder."""
    wrong = find_wrong_layers(layers)
    print("wrong:", *map(str, wrong), sep=" ")
    # On an H200 right engines of the U-Net agreed to 93 to 98%, by the cache least, and wrong ones to 25 to 54%.
    assert (agreement > 0.8) == (not wrong)


@pytest.fixture(scope="session")
def trt() -> Any:
    import tensorrt

    return tensorrt


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_every_onnx_row_of_tensorrts_own_cache(trt: Any, name: str, method: str, tmp_path: Path) -> None:
    data = calibration_data(name)
    batches = (next(iter(batch.inputs.values())) for batch in data.batches(BATCH))
    native = calibrator(trt, METHODS[method], batches, None)
    build(trt, model_path(name).read_bytes(), native)
    assert native.asked == len(data) // BATCH + 1
    theirs = CalibrationCache.parse(native.written)
    ours = calib.calibrate(model_path(name), data, method=method, tensorrt=trt.__version__).cache
    assert ours.header == theirs.header
    shared = [row for row in ours if row in theirs]
    apart = {row: abs(ours[row] / theirs[row] - 1) for row in shared if theirs[row]}
    equal = sum(ours.bits(row) == theirs.bits(row) for row in shared)
    print(f"\n{name} {method}: {len(shared)} of {len(ours)} rows in both, {equal} equal bit for bit, "
          f"furthest apart {max(apart.values()):.2e}; only ours: {sorted(set(ours) - set(theirs))[:5]}")  # fmt: skip
    assert len(shared) == len(ours)
    assert max(apart.values()) < (1e-6 if method == "minmax" else 1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_our_cache_is_taken_and_our_simulation_answers_alike(trt: Any, name: str, method: str) -> None:
    cache = calib.calibrate(
        model_path(name), calibration_data(name), method=method, tensorrt=trt.__version__
    ).cache
    reader = calibrator(trt, METHODS[method], iter(()), cache.to_text().encode())
    plan = build(trt, model_path(name).read_bytes(), reader)
    assert plan is not None
    assert reader.asked == 0
    images = validation_images(name)
    engine, layers = run(trt, plan, images)
    model = load_model(model_path(name))
    reference = open_session(model, session_options()).run(None, {model.inputs[0].name: images})[0]
    simulated_model = quantize_model(model, cache, conv_transpose="int8").model
    simulated = open_session(simulated_model, session_options(float_qdq=True)).run(
        None, {model.inputs[0].name: images}
    )[0]
    agreement = (engine.argmax(1) == simulated[: len(engine)].argmax(1)).mean()
    print(f"\n{name} {method}: {touching_int8(layers)} of {len(layers)} layers touch INT8; SQNR of engine "
          f"{decibels(reference[: len(engine)], engine):.2f} dB, of simulation "
          f"{decibels(reference[: len(engine)], simulated[: len(engine)]):.2f} dB; agreement {agreement:.4f}")  # fmt: skip
    assert touching_int8(layers) > 0
    assert_alike(layers, agreement)


@pytest.mark.parametrize("name", NAMES)
def test_our_qdq_model_is_parsed_and_built(trt: Any, name: str) -> None:
    cache = calib.calibrate(model_path(name), calibration_data(name), tensorrt=trt.__version__).cache
    model = quantize_model(load_model(model_path(name)), cache).model
    plan = build(trt, model.to_bytes())
    assert plan is not None
    images = validation_images(name)
    engine, layers = run(trt, plan, images)
    source = model.inputs[0].name
    simulated = open_session(model, session_options(float_qdq=True)).run(None, {source: images})[0][
        : len(engine)
    ]
    print(f"\n{name} Q/DQ: {touching_int8(layers)} of {len(layers)} layers touch INT8; engine against "
          f"simulation {decibels(simulated, engine):.2f} dB")  # fmt: skip
    assert_alike(layers, (engine.argmax(1) == simulated.argmax(1)).mean())
