"""``calib cache merge``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.calibrators import CalibrationCache

__all__ = ["merge_command"]


def merge_command(
    files: Annotated[list[Path], typer.Argument(help="Calibration caches.", metavar="A B ...")],
    out: Annotated[Path, typer.Option(help="The merged cache.", show_default=False)],
    policy: Annotated[
        str,
        typer.Option(
            help="Scale of a tensor that several have. max: the largest. first (of two: ours), "
            "last (of two: theirs)."
        ),
    ] = "max",
    tensorrt: Annotated[
        str | None, typer.Option(help="TensorRT version in the header, where the caches differ.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Algorithm in the header, where the caches differ.")
    ] = None,
    drop_unusable: Annotated[
        bool, typer.Option("--drop-unusable", help="Leave out entries whose scale INT8 cannot use.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Merge calibration caches into one."""
    from calib.calibrators.cache_edit import merge_caches
    from calib.calibrators.cache_provenance import differing_origins, write_derived
    from calib.cli.cache.output import check_output, emit, header_line, names_line

    check_output(out, files)
    _refuse_partials(files)
    caches, dropped = _read(files, drop_unusable)
    merged = merge_caches(caches, policy, version=tensorrt, algorithm=algorithm)
    notes = (*differing_origins(files), *write_derived(merged.cache, out, None))
    payload = {
        "out": str(out),
        "header": merged.cache.header,
        "tensors": len(merged.cache),
        "policy": policy,
        "conflicts": merged.conflicts,
        "dropped": dropped,
        "notes": notes,
    }
    lines = [
        header_line(out, merged.cache),
        names_line(f"{len(merged.conflicts)} tensors differed ({policy} taken)", merged.conflicts),
    ]
    lines += [names_line(f"{len(dropped)} unusable entries left out", dropped)] if dropped else []
    emit(payload, lines, as_json)


def _read(files: Sequence[Path], drop: bool) -> tuple[list[tuple[str, CalibrationCache]], list[str]]:
    from calib.calibrators import CalibrationCache
    from calib.calibrators.cache_edit import drop_unusable

    caches = [(str(file), CalibrationCache.read(file)) for file in files]
    if not drop:
        return caches, []
    dropped: dict[str, None] = {}
    usable = []
    for source, cache in caches:
        kept, names = drop_unusable(cache, source)
        usable.append((source, kept))
        dropped.update(dict.fromkeys(names))
    return usable, list(dropped)


def _refuse_partials(files: Sequence[Path]) -> None:
    """Partial states of a sharded calibration are merged as statistics, not as caches."""
    from calib.errors import UsageError

    partials = [str(file) for file in files if _is_partial(file)]
    if partials:
        raise UsageError(
            f"Partial states of a sharded calibration are no calibration caches: {', '.join(partials)}."
        )


def _is_partial(file: Path) -> bool:
    if find_spec("calib.calibrators.partial") is None:
        return False
    return bool(import_module("calib.calibrators.partial").is_partial(file))
