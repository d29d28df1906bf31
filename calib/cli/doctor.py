"""``calib doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from calib.engine.checkup import Checkup
    from calib.engine.cuda_libraries import LibraryInfo
    from calib.engine.detect import TensorRTInfo
    from calib.engine.packages import PackageInfo

__all__ = ["doctor_command"]

_PIPE_WIDTH = 400


def doctor_command(
    model: Annotated[
        Path | None,
        typer.Option(
            help="List what TensorRT and calib quantize do with each operator of this model instead.",
            metavar="MODEL.onnx",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="With --model: look at tensorrt-8.6, tensorrt-10 or tensorrt-11 alone."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Show what this machine has, what calib can do on it, and what to install for the rest."""
    if model is not None:
        from calib.cli.layers import show_layers

        show_layers(model, target, as_json)
        return
    if target is not None:
        from calib.errors import UsageError

        raise UsageError("--target goes with --model.")
    from calib.engine.checkup import examine

    checkup = examine()
    if as_json:
        typer.echo(_json(checkup))
    else:
        _draw(checkup)


def _json(checkup: Checkup) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(checkup), indent=1)


def _draw(checkup: Checkup) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        # A file or a pipe has no width: a line folded at 80 columns cannot be searched for.
        console = Console(highlight=False, width=_PIPE_WIDTH)
    for title, table in (
        ("This machine", _machine(checkup)),
        ("Packages", _packages(checkup)),
        ("What can be done here", _abilities(checkup)),
    ):
        console.print(f"\n{title}", style="bold")
        console.print(table)
    for line in checkup.conflicts:
        console.print(f"\n[bold yellow]Known to fail:[/] {_plain(line)}")


def _plain(text: str) -> str:
    """Text whose square brackets are not markup: ``int8-calib[cpu]``."""
    from rich.markup import escape

    return escape(text)


def _table(*styles: str) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for style in styles:
        table.add_column(style=style, overflow="fold")
    return table


def _machine(checkup: Checkup) -> Table:
    table = _table("cyan", "")
    table.add_row("calib", checkup.calib)
    table.add_row("Python", _plain(f"{checkup.python} ({checkup.executable})"))
    table.add_row("System", _plain(f"{checkup.system}, {checkup.logical_cores} logical cores"))
    table.add_row("ONNX Runtime", _plain(_onnxruntime(checkup)))
    for line in _gpu_lines(checkup):
        table.add_row("GPU", _plain(line))
    table.add_row("TensorRT", _plain(_tensorrt(checkup.tensorrt)))
    table.add_row("TensorRT-RTX", _plain(_tensorrt(checkup.tensorrt_rtx)))
    for title, probe in (("PyCUDA", checkup.pycuda), ("cuda-python", checkup.cuda_python)):
        found = "imports" if probe.imports else probe.problem
        table.add_row(title, _plain(found or ""))
    for library in checkup.libraries:
        table.add_row(library.name, _plain(_library(library)))
    return table


def _library(found: LibraryInfo) -> str:
    if found.version is None:
        return "not found"
    others = [package for package in found.packages if found.source != f"package {package.split()[0]}"]
    also = f"; also installed: {', '.join(others)}" if others else ""
    return f"{found.version} from {found.source}{also}"


def _onnxruntime(checkup: Checkup) -> str:
    probe = checkup.onnxruntime
    if not probe.imports:
        return probe.problem or ""
    return f"{probe.version}, providers: {', '.join(probe.answer)}"


def _gpu_lines(checkup: Checkup) -> Iterator[str]:
    fast = {row.gpu: row.precisions for row in checkup.precisions}
    for gpu in checkup.gpus.gpus:
        facts = [f"{gpu.index}: {gpu.name}"]
        if gpu.memory_mib:
            facts.append(f"{gpu.memory_mib / 1024:.0f} GiB")
        if gpu.compute_capability:
            facts.append("compute capability {}.{}".format(*gpu.compute_capability))
        facts.append(f"driver {gpu.driver or 'unknown'} (CUDA {gpu.cuda or 'unknown'})")
        yield ", ".join(facts)
        for precision in fast.get(gpu.index, ()):
            yield f"   {precision.precision}: {precision.how}"
    if checkup.gpus.problem:
        yield f"{'' if checkup.gpus.gpus else 'none: '}{checkup.gpus.problem}"
    if checkup.cuda_visible_devices is not None:
        yield f"CUDA_VISIBLE_DEVICES={checkup.cuda_visible_devices!r} limits programs to these"


def _tensorrt(found: TensorRTInfo) -> str:
    if not found.installed:
        return found.problem or ""
    facts = [f"{found.version or 'of unknown version'}", f"in {found.location}"]
    if found.detected_by:
        facts.append(f"version from {found.detected_by}")
    if found.distribution:
        facts.append(f"package {found.distribution}")
    if found.usable:
        has = "has" if found.calibrators else "has no"
        facts.append(f"{has} INT8 calibrators")
    if found.problem:
        facts.append(f"cannot be used: {found.problem}")
    return ", ".join(facts)


def _packages(checkup: Checkup) -> Table:
    table = _table("cyan", "", "")
    for package in checkup.packages:
        table.add_row(package.name, package.version or "missing", _plain(_package_note(package)))
    return table


def _package_note(package: PackageInfo) -> str:
    if package.too_old:
        return f"older than {package.minimum}: {package.install}"
    return package.install or ""


def _abilities(checkup: Checkup) -> Table:
    table = _table("cyan", "", "")
    for ability in checkup.abilities:
        answer = "[green]yes[/]" if ability.able else "[red]no[/]"
        reasons = "; ".join((*ability.missing, *([ability.install] if ability.install else [])))
        table.add_row(_plain(ability.what), answer, _plain(reasons))
    return table
