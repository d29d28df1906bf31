"""What the sub-commands of ``calib cache`` print, and the files that they must not write over."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calib.calibrators import CalibrationCache, sidecar_path
from calib.errors import UsageError
from calib.files import check_writable, same_file
from calib.wording import counted

__all__ = [
    "check_output",
    "emit",
    "header_line",
    "is_narrow",
    "names_line",
    "print_table",
    "printable",
    "to_json",
]

_PIPE_WIDTH = 400
_WIDE = 100
_SHOWN = 10


def to_json(payload: Mapping[str, Any]) -> str:
    """A result as JSON; numbers that JSON does not have become null."""
    return json.dumps(_finite(payload), indent=1, allow_nan=False)


def emit(payload: Mapping[str, Any], lines: Sequence[str], as_json: bool) -> None:
    """Prints a result: as JSON, or as lines of text with the payload's notes below."""
    import typer

    if as_json:
        typer.echo(to_json(payload))
        return
    for line in (*lines, *(f"note: {note}" for note in payload.get("notes", ()))):
        typer.echo(line)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


def printable(name: str) -> str:
    """A tensor's name, with escapes for characters that a terminal would obey."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in name
    )


def header_line(path: Path, cache: CalibrationCache) -> str:
    """One line on a cache: file, version, algorithm, number of entries."""
    version = f"TensorRT {cache.version}" if cache.version else f"TensorRT version unknown ({cache.header})"
    return f"{path}: {version}, {cache.algorithm}, {counted(len(cache), 'tensor[s]')}"


def names_line(title: str, names: Sequence[str]) -> str:
    """Names on one line, the first ten of them."""
    if not names:
        return f"{title}: none"
    more = f", … and {len(names) - _SHOWN} more (--json has all)" if len(names) > _SHOWN else ""
    return f"{title}: {', '.join(printable(name) for name in names[:_SHOWN])}{more}"


def is_narrow() -> bool:
    """Whether this is a terminal without room for more than names and figures."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table.

    Args:
        headers: Heading of each column; figures stand under those with a text, but for the first.
        rows: Cells of each row, as plain text.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        # A file or a pipe has no width: a line folded at 80 columns cannot be searched for.
        console = Console(highlight=False, width=_PIPE_WIDTH)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for number, header in enumerate(headers):
        # The name may be folded on a narrow terminal, figures never.
        table.add_column(
            header,
            justify="right" if number and header else "left",
            overflow="fold",
            no_wrap=number > 0,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def check_output(out: Path, inputs: Sequence[Path]) -> Path:
    """Refuses an output that would destroy an input or its provenance, or cannot be written.

    Args:
        out: The file that is going to be written.
        inputs: Files that are read.

    Returns:
        The same path.

    Raises:
        UsageError: It is one of the inputs, or an input's sidecar.
        OutputError: It cannot be written.
    """
    check_writable(out)
    for source in inputs:
        if same_file(out, source):
            raise UsageError(f"Output {out} is the input itself. Choose another file.")
        if same_file(out, sidecar_path(source)):
            raise UsageError(f"Output {out} is the provenance of {source}. Choose another file.")
    return out
