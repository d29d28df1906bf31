"""What the runs of a validation are called: the one place that decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["RunName", "method_of", "unique_names"]

_METHODS = {
    "EntropyCalibration2": "entropy",
    "MinMaxCalibration": "minmax",
    "EntropyCalibration": "entropy1",
    "LegacyCalibration": "legacy",
}

_RUNNERS = {"pytorch": "PyTorch", "tensorrt": "TensorRT"}


@dataclass(frozen=True)
class RunName:
    """A precision, and which calibration it was made with.

    Attributes:
        precision: "fp32", "fp16" or "int8".
        calibration: Name of the calibration cache; empty where none is needed.
        several: Whether other calibrations are compared beside it, so that the label must tell them apart.
        runner: The software that runs it, where that is not ONNX Runtime: "pytorch", "tensorrt".
        form: What else tells it from others, such as "Q/DQ".
    """

    precision: str
    calibration: str = ""
    several: bool = False
    runner: str = ""
    form: str = ""

    @property
    def label(self) -> str:
        """What tables, charts and warnings call the run.

        >>> RunName("fp32").label, RunName("int8", "entropy").label
        ('FP32', 'INT8')
        >>> RunName("int8", "entropy", several=True).label
        'INT8 entropy'
        >>> RunName("fp16", runner="pytorch").label
        'PyTorch FP16'
        """
        words = (_RUNNERS.get(self.runner), self.precision.upper(), self.form)
        precision = " ".join(filter(None, words))
        return f"{precision} {self.calibration}" if self.several and self.calibration else precision


def method_of(algorithm: str) -> str:
    """The short name of the algorithm that a calibration cache's header states.

    >>> method_of("EntropyCalibration2"), method_of("LegacyCalibration"), method_of("MyCalibration")
    ('entropy', 'legacy', 'MyCalibration')
    """
    return _METHODS.get(algorithm, algorithm)


def unique_names(methods: Sequence[str], stems: Sequence[str]) -> tuple[str, ...]:
    """Names calibration caches by method, by file stem where methods repeat, and by number after that.

    Args:
        methods: The method of each cache.
        stems: The file name of each cache, without its ending.

    >>> unique_names(["entropy", "minmax"], ["a", "b"])
    ('entropy', 'minmax')
    >>> unique_names(["entropy", "minmax", "entropy", "entropy"], ["a", "b", "c", "c"])
    ('a', 'minmax', 'c', 'c-2')
    """
    repeats = Counter(methods)
    wanted = [stem if repeats[method] > 1 else method for method, stem in zip(methods, stems, strict=True)]
    names: list[str] = []
    for name in wanted:
        numbered = (f"{name}-{number}" for number in range(2, len(wanted) + 2))
        # A numbered name must not take the name that another file has by itself.
        free = (other for other in numbered if other not in names and other not in wanted)
        names.append(next(free) if name in names else name)
    return tuple(names)
