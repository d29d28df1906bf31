"""Validation: what each precision costs in accuracy and takes in time."""

from calib.validation.engine_options import EngineOptions
from calib.validation.gpu_latency import GpuLatency, GpuLatencyPlan, measure_gpu_latency
from calib.validation.results import (
    CalibrationRecord,
    DatasetRecord,
    Environment,
    Latency,
    Metric,
    ModelRecord,
    OutputError,
    PrecisionRun,
    Results,
    WorstSample,
    read_results,
    write_results,
)
from calib.validation.run import validate

__all__ = [
    "CalibrationRecord",
    "DatasetRecord",
    "EngineOptions",
    "Environment",
    "GpuLatency",
    "GpuLatencyPlan",
    "Latency",
    "Metric",
    "ModelRecord",
    "OutputError",
    "PrecisionRun",
    "Results",
    "WorstSample",
    "measure_gpu_latency",
    "read_results",
    "validate",
    "write_results",
]
