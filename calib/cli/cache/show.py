"""``calib cache show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.wording import counted

if TYPE_CHECKING:
    from calib.calibrators import CalibrationCache, Sidecar
    from calib.calibrators.cache_table import CacheRow

__all__ = ["show_command"]

_BAR = 20


def show_command(
    file: Annotated[Path, typer.Argument(help="The calibration cache.", metavar="FILE")],
    sort: Annotated[
        str, typer.Option(help="file: as it stands there. name. scale: unusable first, then the widest.")
    ] = "file",
    as_json: Annotated[bool, typer.Option("--json", help="Print the cache as JSON.")] = False,
) -> None:
    """Show a calibration cache: every tensor's scale, amax and share of the widest range."""
    from calib.calibrators import CalibrationCache, read_sidecar
    from calib.calibrators.cache_provenance import changed_since
    from calib.calibrators.cache_table import cache_rows
    from calib.cli.cache.output import to_json

    cache = CalibrationCache.read(file)
    rows = cache_rows(cache, sort)
    sidecar = read_sidecar(file)
    changed = None if sidecar is None else changed_since(file, sidecar)
    if as_json:
        typer.echo(to_json(_payload(file, cache, rows, sidecar, changed)))
    else:
        _draw(file, cache, rows, sidecar, changed)


def _payload(
    file: Path,
    cache: CalibrationCache,
    rows: list[CacheRow],
    sidecar: Sidecar | None,
    changed: bool | None,
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "file": str(file),
        "header": cache.header,
        "version": cache.version,
        "algorithm": cache.algorithm,
        "tensors": len(cache),
        "unusable": sum(bool(row.unusable) for row in rows),
        "entries": [asdict(row) for row in rows],
        "provenance": None if sidecar is None else sidecar.model_dump(by_alias=True, exclude={"sample_ids"}),
        "changed_since_calibration": changed,
    }


def _draw(
    file: Path,
    cache: CalibrationCache,
    rows: list[CacheRow],
    sidecar: Sidecar | None,
    changed: bool | None,
) -> None:
    from calib.cli.cache.output import header_line, is_narrow, print_table, printable

    typer.echo(header_line(file, cache))
    if sidecar is not None:
        typer.echo(_provenance(sidecar))
    if changed:
        typer.echo("This file was changed after its calibration: the line above is about another content.")
    unusable = sum(bool(row.unusable) for row in rows)
    if unusable:
        typer.echo(f"{counted(unusable, 'scale[s]')} cannot be used.")
    typer.echo()
    columns = 4 if is_narrow() else 5
    print_table(
        ("Tensor", "Scale", "amax", "Of widest", "")[:columns],
        [
            (printable(row.tensor), f"{row.scale:.6g}", f"{row.amax:.6g}", _share(row), _bar(row))[:columns]
            for row in rows
        ],
    )


def _provenance(sidecar: Sidecar) -> str:
    source = f"{sidecar.dataset} ({sidecar.recipe})" if sidecar.recipe else sidecar.dataset
    return (
        f"Made from {sidecar.model} on {counted(sidecar.samples, 'sample[s]')} of {source} by "
        f"{sidecar.method}, "
        f"batches of {sidecar.batch_size}, {sidecar.created}, calib {sidecar.calib_version}"
    )


def _share(row: CacheRow) -> str:
    return row.unusable if row.share is None else f"{100 * row.share:.2f}%"


def _bar(row: CacheRow) -> str:
    return "#" * round(_BAR * (row.share or 0.0))
