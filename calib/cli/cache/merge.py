"""``calib cache merge``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.wording import counted

if TYPE_CHECKING:
    from calib.calibrators import CalibrationCache
    from calib.graph import CalibrationResult

__all__ = ["merge_command"]


def merge_command(
    files: Annotated[
        list[Path],
        typer.Argument(help="Calibration caches, or all partial files of one calibration.", metavar="FILE"),
    ],
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
    """Merge calibration caches, or the parts of a sharded calibration, into one cache."""
    from calib.calibrators.cache_edit import merge_caches
    from calib.calibrators.cache_provenance import differing_origins, write_derived
    from calib.cli.cache.output import check_output, emit, header_line, names_line

    check_output(out, files)
    if _are_partials(files):
        from calib.cli.calibrate import result_json, result_text

        result = _finished(files, out)
        typer.echo(result_json(result) if as_json else result_text(result))
        return
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
        names_line(
            f"{counted(len(merged.conflicts), 'tensor[s]')} differed ({policy} taken)", merged.conflicts
        ),
    ]
    lines += (
        [names_line(f"{counted(len(dropped), 'unusable entr[y|ies]')} left out", dropped)] if dropped else []
    )
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


def _are_partials(files: Sequence[Path]) -> bool:
    """Whether these are the parts of a sharded calibration; a mixture with caches is refused."""
    from calib.calibrators.partial import is_partial
    from calib.errors import UsageError

    partials = [str(file) for file in files if is_partial(file)]
    if partials and len(partials) < len(files):
        raise UsageError(
            f"Partial calibrations and caches cannot be merged: {', '.join(partials)} are partial."
        )
    return bool(partials)


def _finished(files: Sequence[Path], out: Path) -> CalibrationResult:
    from calib.calibrators.partial import merge_partials, read_partial
    from calib.graph import finish_partial

    return finish_partial(merge_partials([(str(file), read_partial(file)) for file in files]), out)
