"""Recurrent state: what a model's outputs were for one sample goes into its inputs for the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from calib.data import Array, Carried
from calib.errors import DatasetError, first_names

__all__ = ["StateKeeper"]


class StateKeeper:
    """Keeps the outputs that are inputs of the next batch.

    Each model that is run on a sequence needs a keeper of its own: an INT8 model's state is not FP32's.

    Args:
        outputs: The outputs that can be kept, all of the model's.
        model: The model's name, for messages.

    >>> keeper = StateKeeper(["y", "hn"], "net.onnx")
    >>> keeper.keep({"h": Carried("hn")}, {"y": np.zeros(1), "hn": np.array([3.0])})
    >>> keeper.complete({"h": Carried("hn")}, {"x": np.ones(1)})["h"].tolist()
    [3.0]
    """

    def __init__(self, outputs: Collection[str], model: str) -> None:
        self._outputs = outputs
        self._model = model
        self._kept: dict[str, Array] = {}

    def complete(self, state: Mapping[str, Carried], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Adds the state that the feeds lack: they have it only where a sequence begins.

        Raises:
            DatasetError: A declared output is none of the model's, or nothing was kept before.
        """
        for name, carried in state.items():
            if carried.output not in self._outputs:
                raise DatasetError(
                    f"State {name!r} is fed from output {carried.output!r}, which {self._model} does not "
                    f"have as a float output: it has {first_names(list(self._outputs))}. Correct 'state' in "
                    "the recipe."
                )
            if name not in feeds and name not in self._kept:
                raise DatasetError(
                    f"State {name!r} of {self._model} is wanted in the middle of a sequence, but no sample "
                    "of it was run before. Feed sequences from their start."
                )
        return {**{name: self._kept[name] for name in state if name not in feeds}, **feeds}

    def keep(self, state: Mapping[str, Carried], outputs: Mapping[str, Array]) -> None:
        """Takes a copy of what the next batch needs."""
        for name, carried in state.items():
            self._kept[name] = np.array(outputs[carried.output])
