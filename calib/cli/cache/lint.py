"""``calib cache lint``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calib.calibrators.cache_lint import Finding
    from calib.graph.cache_model import NameComparison

__all__ = ["lint_command"]

_SHOWN = 10


def lint_command(
    file: Annotated[Path, typer.Argument(help="The calibration cache.", metavar="FILE")],
    model: Annotated[
        Path | None,
        typer.Option(help="ONNX model that it is meant for: compares names, weights and graph."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="TensorRT version that shall read it, such as 10.3.0.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method of the calibrator that shall read it: entropy, minmax, …")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Find what is wrong with a calibration cache. Exit status 1 for errors, --strict: warnings too."""
    from calib.calibrators import CalibrationCache
    from calib.calibrators.cache_lint import lint_cache
    from calib.cli.app import EXIT_FAILED_GATE
    from calib.cli.cache.output import header_line
    from calib.data.findings import passes

    cache = CalibrationCache.read(file)
    findings = lint_cache(cache, target=target, method=method)
    comparison, about_model = _against(file, list(cache), model)
    findings += about_model
    if as_json:
        typer.echo(_json(file, findings, comparison, strict))
    else:
        typer.echo(header_line(file, cache))
        typer.echo(_text(findings, comparison))
    if not passes(findings, strict=strict):
        raise typer.Exit(EXIT_FAILED_GATE)


def _against(file: Path, names: list[str], model: Path | None) -> tuple[NameComparison | None, list[Finding]]:
    from calib.calibrators import read_sidecar
    from calib.calibrators.cache_lint import Finding
    from calib.calibrators.cache_provenance import changed_since

    findings = []
    sidecar = read_sidecar(file)
    if sidecar is not None and changed_since(file, sidecar):
        text = f"the file was changed after its calibration on {sidecar.created}."
        findings.append(Finding("changed-since-calibration", "warning", None, text))
    if model is None:
        return None, findings

    from calib.graph import load_model
    from calib.graph.cache_model import lint_against_model, lint_provenance

    network = load_model(model)
    if sidecar is not None:
        findings += lint_provenance(sidecar, network)
    comparison, about_names = lint_against_model(names, network)
    return comparison, [*findings, *about_names]


def _text(findings: list[Finding], comparison: NameComparison | None) -> str:
    from calib.cli.cache.output import printable
    from calib.data.findings import SEVERITIES, severity_counts

    lines: list[str] = []
    printed: Counter[str] = Counter()
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        printed[finding.code] += 1
        if printed[finding.code] <= _SHOWN:
            where = f"{printable(finding.tensor)}: " if finding.tensor is not None else ""
            lines.append(f"{finding.severity:<8} {finding.code}: {where}{finding.message}")
    lines += [
        f"… {count - _SHOWN} more of {code} (--json has all)"
        for code, count in printed.items()
        if count > _SHOWN
    ]
    if comparison is not None:
        lines.append(comparison.summary)
    lines.append(f"{severity_counts(findings)}.")
    return "\n".join(lines)


def _json(file: Path, findings: list[Finding], comparison: NameComparison | None, strict: bool) -> str:
    from dataclasses import asdict

    from calib.cli.cache.output import to_json
    from calib.data.findings import passes

    names: dict[str, Any] | None = None
    if comparison is not None:
        names = {
            "matched": comparison.matched,
            "only_cache": comparison.only_cache,
            "only_model": comparison.only_model,
            "apart": comparison.apart,
            "unknown": comparison.unknown,
            "nearest": comparison.nearest,
        }
    return to_json(
        {
            "file": str(file),
            "passed": passes(findings, strict=strict),
            "strict": strict,
            "findings": [asdict(finding) for finding in findings],
            "names": names,
        }
    )
