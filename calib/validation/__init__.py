"""Validation: what each precision costs in accuracy and takes in time."""

from calib.validation.baseline import Baseline, make_baseline, read_baseline, write_baseline
from calib.validation.changes import compare_with_baseline
from calib.validation.data_checks import DataCheck, PreparationScore, check_data
from calib.validation.decomposition import Decomposition, PartLoss, decompose
from calib.validation.engine_options import EngineOptions
from calib.validation.gate_rules import Rule
from calib.validation.gates import check, update_baseline
from calib.validation.gpu_latency import GpuLatency, GpuLatencyPlan, measure_gpu_latency
from calib.validation.planning import SamplePlan, plan_samples
from calib.validation.pytorch_options import PyTorchOptions
from calib.validation.qualification import Qualification
from calib.validation.results import (
    CalibrationRecord,
    DatasetRecord,
    Environment,
    KernelDifference,
    Latency,
    Metric,
    ModelRecord,
    OutputError,
    PrecisionRun,
    RebuildRecord,
    Results,
    WorstSample,
    read_results,
    write_results,
)
from calib.validation.run import validate
from calib.validation.verdicts import Change, CheckReport, GateOutcome
from calib.validation.versions import compare

__all__ = [
    "Baseline",
    "CalibrationRecord",
    "Change",
    "CheckReport",
    "DataCheck",
    "DatasetRecord",
    "Decomposition",
    "EngineOptions",
    "Environment",
    "GateOutcome",
    "GpuLatency",
    "GpuLatencyPlan",
    "KernelDifference",
    "Latency",
    "Metric",
    "ModelRecord",
    "OutputError",
    "PartLoss",
    "PrecisionRun",
    "PreparationScore",
    "PyTorchOptions",
    "Qualification",
    "RebuildRecord",
    "Results",
    "Rule",
    "SamplePlan",
    "WorstSample",
    "check",
    "check_data",
    "compare",
    "compare_with_baseline",
    "decompose",
    "make_baseline",
    "measure_gpu_latency",
    "plan_samples",
    "read_baseline",
    "read_results",
    "update_baseline",
    "validate",
    "write_baseline",
    "write_results",
]
