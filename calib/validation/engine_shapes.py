"""The shapes that a validation's engines are built for, where nobody says them: those of its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from calib.data import Array
from calib.engine.shapes import InputRange, resolve_shapes
from calib.errors import UsageError
from calib.graph.open_sizes import open_axes
from calib.validation.options import Options

if TYPE_CHECKING:
    from calib.graph import OnnxModel, TensorSpec

__all__ = ["Feeds", "engine_shapes", "fixed_batch"]

Feeds = Callable[[], Iterable[Mapping[str, Array]]]
"""Makes every batch that will be run, the timed one first."""

_Sizes = tuple[int, int, int]


def fixed_batch(model: OnnxModel, options: Options) -> int | None:
    """The batch size of every run: what the model insists on, or ``--shapes`` with one batch alone.

    Args:
        model: The model.
        options: Batch sizes, and the shapes that engines are built for.

    Returns:
        The batch size; None where any goes that the shapes allow.

    Raises:
        UsageError: The shapes leave out batches that would be run; said before anything is built.
    """
    if model.fixed_batch is not None or not options.engine.shapes:
        return model.fixed_batch
    ranges, _ = resolve_shapes(model, options.engine.shapes)
    varying = [found for found, spec in zip(ranges, model.inputs, strict=True) if _has_open_batch(spec)]
    sizes = {size for found in varying for size in (found.smallest[0], found.largest[0])}
    if len(sizes) == 1:
        return sizes.pop()
    for found in varying:
        _check_batches(found, options)
    return None


def _has_open_batch(spec: TensorSpec) -> bool:
    return bool(spec.shape) and not isinstance(spec.shape[0], int)


def _check_batches(found: InputRange, options: Options) -> None:
    asked = {"--latency-batch": options.latency.batch_size, "--batch-size": options.batch_size}
    smallest, largest = found.smallest[0], found.largest[0]
    for option, size in asked.items():
        if not smallest <= size <= largest:
            raise UsageError(
                f"--shapes {found} allows batches of {smallest} to {largest}, but {option} is {size}. Pass "
                f"{option} {min(max(size, smallest), largest)}, or other shapes."
            )


def engine_shapes(model: OnnxModel, options: Options, feeds: Feeds | None = None) -> tuple[str, ...]:
    """A range for each input that has no fixed shape.

    The batch goes from 1 to the largest that is run. What else a model leaves open, such as height and width
    or a length, is found by reading the data once: an engine takes no shape outside of its range.

    Args:
        model: The model.
        options: Batch sizes.
        feeds: Every batch; read only where more than the batch is open.

    Returns:
        "input:smallest:usual:largest" each; nothing where no input is open, or the data do not tell.
    """
    largest = max(options.batch_size, options.latency.batch_size)
    usual = options.latency.batch_size if options.latency.count else options.batch_size
    varying = [spec for spec in model.inputs if not all(isinstance(size, int) for size in spec.shape)]
    seen = _seen([spec for spec in varying if open_axes(spec)], feeds)
    if seen is None:
        return ()
    return tuple(_range(spec, (1, usual, largest), seen.get(spec.name, ())) for spec in varying)


def _seen(specs: Sequence[TensorSpec], feeds: Feeds | None) -> dict[str, list[tuple[int, ...]]] | None:
    """Every shape of some inputs; None where one of them is not fed."""
    found: dict[str, dict[tuple[int, ...], None]] = {spec.name: {} for spec in specs}
    if found and feeds is not None:
        for batch in feeds():
            for name in found.keys() & batch.keys():
                found[name][batch[name].shape] = None
    return {name: [*shapes] for name, shapes in found.items()} if all(found.values()) else None


def _range(spec: TensorSpec, batches: _Sizes, seen: Sequence[tuple[int, ...]]) -> str:
    sizes: list[_Sizes] = []
    for axis, size in enumerate(spec.shape):
        if isinstance(size, int):
            sizes.append((size, size, size))
        elif axis == 0:
            sizes.append(batches)
        else:
            had = [shape[axis] for shape in seen]
            sizes.append((min(had), had[0], max(had)))
    return ":".join((spec.name, *("x".join(map(str, shape)) for shape in zip(*sizes, strict=True))))
