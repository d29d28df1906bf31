from __future__ import annotations

import pytest

from calib.engine.precisions import precision_support

# "Hardware and Precision", TensorRT support matrix 8.6 and 10.x: FP16, INT8, INT8 tensor cores.
MATRIX = [
    ((5, 0), False, False, False),
    ((5, 3), True, False, False),
    ((6, 0), True, False, False),
    ((6, 1), False, True, False),
    ((6, 2), True, False, False),
    ((7, 0), True, True, False),
    ((7, 2), True, True, True),
    ((7, 5), True, True, True),
    ((8, 0), True, True, True),
    ((8, 6), True, True, True),
    ((8, 9), True, True, True),
    ((9, 0), True, True, True),
    ((12, 0), True, True, True),
]


@pytest.mark.parametrize(("capability", "fp16", "int8", "int8_tensor_cores"), MATRIX)
def test_matrix(capability: tuple[int, int], fp16: bool, int8: bool, int8_tensor_cores: bool) -> None:
    rows = {row.precision: row for row in precision_support(capability)}
    assert rows["fp16"].fast is fp16
    assert rows["int8"].fast is int8
    assert (rows["int8"].how == "tensor cores") is int8_tensor_cores


@pytest.mark.parametrize(("precision", "first"), [("tf32", (8, 0)), ("bf16", (8, 0)), ("fp8", (8, 9))])
def test_newer_precisions(precision: str, first: tuple[int, int]) -> None:
    def fast(capability: tuple[int, int]) -> bool:
        return next(r for r in precision_support(capability) if r.precision == precision).fast

    assert fast(first)
    assert not fast((first[0], first[1] - 1))
