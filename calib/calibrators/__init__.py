"""Calibrators: from activations to ranges, and the files that hold them."""

from calib.calibrators.adequacy import Adequacy, TensorAdequacy, assess
from calib.calibrators.base import Calibrator, absolute_maximum, check_finite
from calib.calibrators.cache import CalibrationCache, unusable_reason
from calib.calibrators.entropy import EntropyCalibrator
from calib.calibrators.magnitude import MagnitudeCalibrator, MagnitudeHistogram
from calib.calibrators.minmax import MinMaxCalibrator
from calib.calibrators.mse import MSECalibrator
from calib.calibrators.percentile import PercentileCalibrator
from calib.calibrators.provenance import Sidecar, read_sidecar, sidecar_path, write_with_sidecar
from calib.calibrators.ranges import RangeTable, scale_of
from calib.calibrators.registry import CALIBRATORS, make_calibrator
from calib.calibrators.trt_version import decode_version, encode_version

__all__ = [
    "CALIBRATORS",
    "Adequacy",
    "CalibrationCache",
    "Calibrator",
    "EntropyCalibrator",
    "MSECalibrator",
    "MagnitudeCalibrator",
    "MagnitudeHistogram",
    "MinMaxCalibrator",
    "PercentileCalibrator",
    "RangeTable",
    "Sidecar",
    "TensorAdequacy",
    "absolute_maximum",
    "assess",
    "check_finite",
    "decode_version",
    "encode_version",
    "make_calibrator",
    "read_sidecar",
    "scale_of",
    "sidecar_path",
    "unusable_reason",
    "write_with_sidecar",
]
