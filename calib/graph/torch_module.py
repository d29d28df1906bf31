"""Networks of the user's own code: ``module:factory`` → a torch module in evaluation mode."""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.data.objects import load_object
from calib.data.reader_sources import failed
from calib.errors import DatasetError, ModelError, UsageError, require
from calib.wording import suggestion

if TYPE_CHECKING:
    from torch import nn

__all__ = ["foreign_code", "load_module", "module_name", "parse_arguments", "require_torch"]


def require_torch(purpose: str) -> Any:
    """Imports torch.

    Args:
        purpose: What it is needed for, as the start of the message.

    Raises:
        MissingExtraError: It is not installed.
    """
    return require("torch", "torch", purpose)


@contextmanager
def foreign_code(what: str) -> Iterator[None]:
    """Turns an exception of the user's code into an error that names what failed and where.

    Args:
        what: What is done with it, as the start of the message.

    Raises:
        ModelError: Something was raised that is not one of calib's own errors.
    """
    try:
        with failed(what):
            yield
    except DatasetError as error:
        raise ModelError(str(error)) from (error.__cause__ or error)


def parse_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Arguments of a factory, as a command line has them.

    Args:
        texts: Each ``name=value``. Values are Python literals; what is none is text.

    Raises:
        UsageError: One has no name, or a name comes twice.

    >>> parse_arguments(["weights=None", "width=0.5", "norm=batch"])
    {'weights': None, 'width': 0.5, 'norm': 'batch'}
    """
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"Expected --arg name=value, such as --arg weights=None, got {text!r}.")
        if name in arguments:
            raise UsageError(f"--arg {name} is given twice. Give each argument once.")
        arguments[name] = _literal(value)
    return arguments


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def module_name(source: nn.Module | Callable[..., Any] | str) -> str:
    """A short name for messages and files: the object's own.

    Args:
        source: As ``load_module`` takes it.

    >>> module_name("torchvision.models:resnet18")
    'resnet18'
    """
    if isinstance(source, str):
        return source.rpartition(":")[2].rpartition(".")[2] or source
    named = source if hasattr(source, "__qualname__") else type(source)
    return str(named.__qualname__.rpartition(".")[2])


def load_module(
    source: nn.Module | Callable[..., Any] | str,
    *,
    arguments: Mapping[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> nn.Module:
    """Makes the network, loads its weights and switches it to evaluation.

    Text runs code: the module that it names is imported, looked for in the current folder first.

    Args:
        source: A torch module; a class or function that makes one; or ``package.module:name`` or
            ``path/to/file.py:name`` of one of these.
        arguments: Keyword arguments of the class or function.
        weights: File of a state dict, written by ``torch.save(module.state_dict(), file)``. It is read
            with ``weights_only=True``, which runs no code.

    Returns:
        The module, on the CPU and in evaluation mode. Of a given module it is a copy: the caller's may be
        in training, or on a GPU.

    Raises:
        UsageError: The text has another form, or there are arguments for a module that is there already.
        ModelError: There is no such object, it fails, it makes no torch module, or the weights do not fit.
        MissingExtraError: torch is not installed.
    """
    require_torch("Running PyTorch networks")
    name = repr(source) if isinstance(source, str) else module_name(source)
    found = _object(source) if isinstance(source, str) else source
    module = _made(found, dict(arguments or {}), name)
    if weights is not None:
        from calib.graph.torch_weights import load_weights

        load_weights(module, weights, name)
    with foreign_code(f"Switching {name} to evaluation on the CPU"):
        return module.cpu().eval()


def _made(found: Any, arguments: dict[str, Any], name: str) -> nn.Module:
    from torch import nn

    if isinstance(found, nn.Module):
        if arguments:
            raise UsageError(
                f"{name} is a module already: arguments ({', '.join(arguments)}) go to a factory."
            )
        with foreign_code(f"Copying {name}"):
            return copy.deepcopy(found)
    if not callable(found):
        raise ModelError(
            f"{name} is no network: expected a torch module, or a class or function that makes one, "
            f"got {type(found).__qualname__}."
        )
    _check_arguments(found, arguments, name)
    with foreign_code(f"Calling {name}"):
        made = found(**arguments)
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"{name} made {type(made).__qualname__}, expected a torch module. Return the module."
        )
    return made


def _check_arguments(factory: Callable[..., Any], arguments: dict[str, Any], name: str) -> None:
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(arguments) or "none"
        raise ModelError(
            f"{name} cannot be called: {error} (arguments given: {given}). Give them with --arg name=value "
            "(arguments= in Python), or wrap it in a function without arguments."
        ) from error
    except ValueError:
        pass  # Some callables written in C tell no signature.


def _object(text: str) -> Any:
    place, colon, attribute = text.rpartition(":")
    if not colon or not place or not attribute:
        raise UsageError(
            f"Expected module:factory, such as torchvision.models:resnet18 or net.py:Net, got {text!r}."
        )
    if not place.endswith(".py"):
        with foreign_code(f"Loading {text!r}"):
            return load_object(text)
    found: Any = _imported_file(Path(place), text)
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = suggestion(part, [known for known in dir(found) if not known.startswith("_")])
            raise ModelError(f"{text!r}: {place} has no {part!r}.{close}")
        found = getattr(found, part)
    return found


def _imported_file(path: Path, text: str) -> Any:
    """Imports a Python file by its path; what lies beside it can be imported from it."""
    if not path.is_file():
        raise ModelError(f"{text!r}: there is no file {path}.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # A name of its own: a file called test.py or models.py must not replace a module of that name.
    name = f"calib_user_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{text!r}: {path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with foreign_code(f"{text!r}: importing {path}"):
        spec.loader.exec_module(module)
    return module
