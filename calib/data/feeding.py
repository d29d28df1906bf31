"""What a recipe says of inputs beyond the samples: padding, constants and carried state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator
from typing_extensions import Self

from calib.data.sample import Array, Carried, Padding

__all__ = [
    "ConstantOption",
    "Constants",
    "InputName",
    "PaddingOption",
    "Paddings",
    "StateOption",
    "States",
]

InputName = Annotated[str, Field(min_length=1)]
_Axis = Annotated[StrictInt, Field(ge=-8, le=7)]


def _several(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else (value,)


class PaddingOption(BaseModel):
    """How an input of samples of different lengths is filled up, at the end, to one length a batch.

    Attributes:
        axis: The axis that is filled up, or a list of axes, counted from 0 without the batch axis.
        value: What is put there.
        to: Length that the axis gets in every batch; that of the batch's longest sample if omitted.
        multiple: The length is raised to the next multiple of it.
        mask: Name of a model input that is made: 1 where there is data, 0 where it was filled up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    axis: Annotated[tuple[_Axis, ...], BeforeValidator(_several), Field(min_length=1)] = (0,)
    value: Annotated[float, Field(allow_inf_nan=False)] = 0
    to: Annotated[StrictInt, Field(ge=1)] | None = None
    multiple: Annotated[StrictInt, Field(ge=1)] = 1
    mask: InputName | None = None

    def padding(self) -> Padding:
        """The same for the dataset."""
        return Padding(self.axis, self.value, self.to, self.multiple, self.mask)


class ConstantOption(BaseModel):
    """An input that is the same for every sample; in the recipe a bare number or list will do.

    Attributes:
        value: A number, or nested lists of numbers. Without the model's batch axis it is repeated for
            every sample.
        dtype: Its type; if omitted int64 for whole numbers, float32 for others. It is converted to what
            the model declares where no value is lost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Any
    dtype: Literal["float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool"] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.array()
        return self

    def array(self) -> Array:
        """The constant as an array.

        Raises:
            ValueError: The value is no number and no regular nested list of numbers, or does not fit
                the type.
        """
        try:
            given = np.asarray(self.value)
        except ValueError:
            given = np.empty(0)
        if given.dtype.kind not in "biuf" or not given.size:
            raise ValueError(f"expected a number or lists of numbers of one length, got {self.value!r}")
        kind = self.dtype or {"f": "float32", "b": "bool"}.get(given.dtype.kind, "int64")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            array = given.astype(kind)
        if not np.array_equal(array.astype(given.dtype), given) and np.dtype(kind).kind != "f":
            raise ValueError(f"{self.value!r} does not fit {kind}")
        if not np.isfinite(array.astype(np.float64)).all():
            raise ValueError(f"expected finite numbers that fit {kind}, got {self.value!r}")
        return array


def _as_constant(value: object) -> object:
    return value if isinstance(value, (Mapping, ConstantOption)) else {"value": value}


class StateOption(BaseModel):
    """An input that an output of the model feeds for the next sample; a bare output name will do.

    Attributes:
        output: The output.
        shape: Shape of the zeros that a sequence begins with, the batch axis included; if omitted what
            the model declares, with 1 where it leaves a size open.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: InputName
    shape: tuple[Annotated[StrictInt, Field(ge=0)], ...] | None = None

    def carried(self) -> Carried:
        """The same for the dataset."""
        return Carried(self.output, self.shape)


def _as_state(value: object) -> object:
    return {"output": value} if isinstance(value, str) else value


Constants = dict[InputName, Annotated[ConstantOption, BeforeValidator(_as_constant)]]
Paddings = dict[InputName, PaddingOption]
States = dict[InputName, Annotated[StateOption, BeforeValidator(_as_state)]]
