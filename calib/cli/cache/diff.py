"""``calib cache diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.wording import counted

if TYPE_CHECKING:
    from calib.calibrators.cache_diff import CacheDiff

__all__ = ["diff_command"]


def diff_command(
    first: Annotated[Path, typer.Argument(help="A calibration cache.", metavar="A")],
    second: Annotated[Path, typer.Argument(help="Another one.", metavar="B")],
    model: Annotated[
        Path | None, typer.Option(help="ONNX model: compare its float activations only.")
    ] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option(help="Exit status 1 if any two scales are further apart than this factor."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two calibration caches by the ratio of their scales, the largest difference first."""
    from calib.calibrators import CalibrationCache
    from calib.calibrators.cache_diff import diff_caches
    from calib.cli.app import EXIT_FAILED_GATE
    from calib.cli.cache.output import header_line
    from calib.errors import UsageError

    if max_ratio is not None and not max_ratio >= 1:
        raise UsageError(f"--max-ratio is a factor of at least 1, such as 1.1; got {max_ratio}.")
    old, new = CalibrationCache.read(first), CalibrationCache.read(second)
    names = None if model is None else _activations([*old, *new], model)
    diff = diff_caches(old, new, names)
    passed = max_ratio is None or (bool(diff.ratios) and diff.largest_factor <= max_ratio)
    if as_json:
        typer.echo(_json(first, second, old.header, new.header, diff, max_ratio, passed))
    else:
        typer.echo(f"A {header_line(first, old)}\nB {header_line(second, new)}")
        _draw(diff)
        if not passed:
            typer.echo(_failure(diff, max_ratio))
    if not passed:
        raise typer.Exit(EXIT_FAILED_GATE)


def _activations(names: list[str], model: Path) -> frozenset[str]:
    """Those of the names that are float activations of a model."""
    from calib.graph import load_model
    from calib.graph.cache_model import compare_names

    return frozenset(compare_names(names, load_model(model)).matched)


def _draw(diff: CacheDiff) -> None:
    from calib.cli.cache.output import names_line, print_table, printable

    different = [row for row in diff.ratios if not row.equal_bits]
    if different:
        typer.echo()
        print_table(
            ("Tensor", "Scale A", "Scale B", "B / A"),
            [
                (printable(row.tensor), f"{row.first:.6g}", f"{row.second:.6g}", f"{row.ratio:.6g}")
                for row in different
            ],
        )
        typer.echo()
    typer.echo(
        f"{counted(len(diff.ratios), 'tensor[s]')} in both: {diff.equal} equal bit for bit, "
        f"{len(different)} not."
    )
    if different:
        typer.echo(
            f"Furthest apart by the factor {diff.largest_factor:.6g}, median {diff.median_factor:.6g}."
        )
    if diff.only_first:
        typer.echo(names_line(f"{len(diff.only_first)} only in A", diff.only_first))
    if diff.only_second:
        typer.echo(names_line(f"{len(diff.only_second)} only in B", diff.only_second))


def _failure(diff: CacheDiff, max_ratio: float | None) -> str:
    if not diff.ratios:
        return "FAILED: the caches have no tensor in common."
    worst = diff.ratios[0]
    return f"FAILED: {worst.tensor} differs by the factor {worst.factor:.6g}, at most {max_ratio} is allowed."


def _json(
    first: Path,
    second: Path,
    old_header: str,
    new_header: str,
    diff: CacheDiff,
    max_ratio: float | None,
    passed: bool,
) -> str:
    from dataclasses import asdict

    from calib.cli.cache.output import to_json

    return to_json(
        {
            "first": str(first),
            "second": str(second),
            "headers": [old_header, new_header],
            "equal_bits": diff.equal,
            "largest_factor": diff.largest_factor,
            "median_factor": diff.median_factor,
            "ratios": [asdict(row) for row in diff.ratios],
            "only_first": diff.only_first,
            "only_second": diff.only_second,
            "max_ratio": max_ratio,
            "passed": passed,
        }
    )
