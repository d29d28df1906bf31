"""TensorRT's version numbers, as they stand in the header of a calibration cache."""

from __future__ import annotations

import re

from calib.errors import UsageError

__all__ = ["decode_version", "encode_version"]

_VERSION = re.compile(r"(\d{1,2})\.(\d{1,2})(?:\.(\d{1,2})(?!\d).*|\+.*)?")


def encode_version(version: str) -> str:
    """The digits of a version: NV_TENSORRT_VERSION of NvInferRuntimeBase.h.

    Args:
        version: "8.6.0", "8.6", "10.3.0" or what ``tensorrt.__version__`` says, such as "10.16.1.11";
            what follows the third number does not count.

    Raises:
        UsageError: It is no version.

    >>> encode_version("8.6.1"), encode_version("8.5.10"), encode_version("10.3.0")
    ('8601', '8510', '100300')
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise UsageError(f"TensorRT version must look like 8.6.0 or 10.3.0, got {version!r}.")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return str(major * (1000 if major < 10 else 10000) + minor * 100 + patch)


def decode_version(digits: str) -> str | None:
    """The version that a header's digits stand for; None where they are a placeholder.

    >>> decode_version("8600"), decode_version("101401"), decode_version("8XXX")
    ('8.6.0', '10.14.1', None)
    """
    # Versions before 10 have four, those from 10 on six.
    if not (digits.isascii() and digits.isdigit() and len(digits) in (4, 6)):
        return None
    number = int(digits)
    unit = 1000 if number < 10_000 else 10_000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"
