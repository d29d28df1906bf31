"""Weights of a torch module from a file that holds tensors alone."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.errors import ModelError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["load_weights"]

# What training scripts call the state dict in the checkpoints that they save.
_ENTRIES = ("state_dict", "model_state_dict", "model")
_WRAPPER = "module."
_SHOWN = 4


def load_weights(module: nn.Module, path: str | os.PathLike[str], name: str) -> None:
    """Loads a state dict into a module, strictly: every weight must be there and fit.

    A checkpoint that holds the state dict as ``state_dict``, ``model_state_dict`` or ``model`` is taken
    too, and so is the prefix ``module.`` that DataParallel puts before every name.

    Args:
        module: The module; it is changed.
        path: The file.
        name: The module's name, for messages.

    Raises:
        ModelError: The file cannot be read, holds more than tensors, or does not fit the module.
    """
    state = _state(_read(Path(path)), Path(path))
    own = module.state_dict()
    faults = [
        *_listed("lacks", own.keys() - state.keys()),
        *_listed("has", state.keys() - own.keys(), ", which the network has not"),
        *_listed("has another shape of", _misshaped(own, state)),
    ]
    if faults:
        raise ModelError(
            f"Weights {path} do not fit {name}: the file {'; it '.join(faults)}. "
            "Make the network as it was when they were saved, or give the weights of this one."
        )
    module.load_state_dict(state, strict=True)


def _read(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise ModelError(f"No such weights: {path}. Give a file made by torch.save(module.state_dict(), …).")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"Weights {path} cannot be read as tensors alone (weights_only=True): {reason[:300]} "
            "Save them again with torch.save(module.state_dict(), file)."
        ) from error


def _state(content: Any, path: Path) -> dict[str, Any]:
    import torch

    for entry in _ENTRIES:
        if isinstance(content, Mapping) and isinstance(content.get(entry), Mapping):
            content = content[entry]
            break
    if not isinstance(content, Mapping) or not content:
        raise ModelError(
            f"Weights {path} hold {type(content).__qualname__}, expected a state dict (name → tensor). "
            "Save them with torch.save(module.state_dict(), file)."
        )
    state = {str(key): value for key, value in content.items()}
    if all(key.startswith(_WRAPPER) for key in state):
        state = {key.removeprefix(_WRAPPER): value for key, value in state.items()}
    return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}


def _misshaped(own: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} ({list(state[key].shape)}, the network has {list(value.shape)})"
        for key, value in own.items()
        if key in state and value.shape != state[key].shape
    ]


def _listed(verb: str, names: Iterable[str], after: str = "") -> list[str]:
    ordered = sorted(names)
    if not ordered:
        return []
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return [f"{verb} {', '.join(ordered[:_SHOWN])}{more}{after}"]
