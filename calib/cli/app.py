"""The command ``calib``: its sub-commands, and what becomes of their errors."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from calib import __version__
from calib.cli.build import build_command
from calib.cli.cache import cache_app
from calib.cli.calibrate import calibrate_command
from calib.cli.check import check_command
from calib.cli.compare import compare_command
from calib.cli.data import data_app
from calib.cli.decompose import decompose_command
from calib.cli.demo import demo_command
from calib.cli.doctor import doctor_command
from calib.cli.export import export_command
from calib.cli.fp16 import fp16_command
from calib.cli.groups import add_commands, make_app
from calib.cli.inspect import inspect_command
from calib.cli.plan import plan_command
from calib.cli.quantize import quantize_command
from calib.cli.report import report_command
from calib.cli.validate import validate_command
from calib.errors import CalibError

__all__ = ["EXIT_ERROR", "EXIT_FAILED_GATE", "app", "main"]

EXIT_FAILED_GATE = 1
EXIT_ERROR = 2
_EXIT_INTERRUPTED = 130
_INTERRUPTED = "calib: interrupted"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

app = make_app(
    "INT8 calibration and accuracy validation for TensorRT.",
    name="calib",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"calib {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """INT8 calibration and accuracy validation for TensorRT."""


_COMMANDS = (
    (demo_command, "The whole job on shipped data, on a CPU", "demo --out DIR"),
    (
        export_command,
        "PyTorch network → ONNX model",
        "export torchvision.models:resnet18 --input image:1x3x224x224 --dynamic batch",
    ),
    (
        calibrate_command,
        "Model + data → TensorRT calibration cache",
        "calibrate model.onnx --data recipe.yaml --method entropy",
    ),
    (
        quantize_command,
        "Model + cache → model with Q/DQ nodes",
        "quantize model.onnx --cache model.cache --target tensorrt-10",
    ),
    (
        fp16_command,
        "Model → float16, but for what leaves its range",
        "fp16 model.onnx --data recipe.yaml",
    ),
    (build_command, "Model → TensorRT engine", "build model.onnx --precision best --cache model.cache"),
    (
        inspect_command,
        "An engine's layers: precision, fusion, why not INT8",
        "inspect int8.engine --model model.onnx --profile --against fp16.engine",
    ),
    (
        validate_command,
        "Compare FP32, FP16 and INT8",
        "validate model.onnx --data recipe.yaml --cache model.cache --out run",
    ),
    (
        decompose_command,
        "Where an INT8 loss comes from",
        "decompose model.onnx --data recipe.yaml --cache model.cache",
    ),
    (
        check_command,
        "Judge results by gates; exit status 1 where they fail",
        "check run/results.json --max-drop 1% --min-sqnr 20",
    ),
    (
        compare_command,
        "What changed between two results of one model",
        "compare old/results.json new/results.json --margin 1%",
    ),
    (plan_command, "How many samples a gate needs", "plan --margin 0.5 --baseline 76 --disagreement 3.0"),
    (report_command, "Results → HTML, Markdown, CSV", "report cpu/results.json gpu/results.json --out DIR"),
    (doctor_command, "What this machine has and can do", "doctor --model model.onnx"),
)

add_commands(app, "calib", _COMMANDS)
app.add_typer(data_app, name="data", short_help="Look at data; find what is wrong with them")
app.add_typer(cache_app, name="cache", short_help="Show, check, compare and edit calibration caches")


def main() -> None:
    """Runs ``calib``. Exit status: 0 done, 1 a gate failed, 2 usage, data or environment error."""
    _ready_streams()
    try:
        app()
    except CalibError as error:
        print(f"calib: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)  # noqa: T201
        sys.exit(_EXIT_INTERRUPTED)
    except SystemExit as ended:
        # typer makes this of a KeyboardInterrupt, and says nothing.
        if ended.code == _EXIT_INTERRUPTED:
            print(_INTERRUPTED, file=sys.stderr)  # noqa: T201
        # typer and rich make 1 of a broken pipe, which here means a failed gate.
        if isinstance(ended.__context__, BrokenPipeError):
            sys.exit(EXIT_ERROR)
        raise
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away; nobody is left to tell.
        _drop_output()
        sys.exit(EXIT_ERROR)
    except OSError as error:
        # Files are written by calib.files, whose errors are CalibErrors: this is what was printed.
        if error.errno not in _FULL or error.filename is not None:
            raise
        _drop_output()
        print(f"calib: Cannot write to standard output: {error.strerror}. Free space there.", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_ERROR)


def _ready_streams() -> None:
    """Neither a locale without our signs nor a file's name that is no text ends a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        # Opened to stay: a file that gets the number of standard error would be written into.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _drop_output() -> None:
    """Nothing more is written, at the end of the interpreter neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
