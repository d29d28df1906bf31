"""``calib cache``: one file a sub-command."""

from __future__ import annotations

import typer

from calib.cli.cache.convert import convert_command
from calib.cli.cache.diff import diff_command
from calib.cli.cache.lint import lint_command
from calib.cli.cache.merge import merge_command
from calib.cli.cache.rename import rename_command
from calib.cli.cache.show import show_command

__all__ = ["cache_app"]

cache_app = typer.Typer(
    help="Show, check, compare and edit calibration caches.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name, _function, _summary in (
    ("show", show_command, "Table of tensors, scales and ranges"),
    ("lint", lint_command, "What is wrong with a cache; a gate"),
    ("diff", diff_command, "Two caches by ratio"),
    ("merge", merge_command, "Several caches → one"),
    ("rename", rename_command, "New tensor names, for edited graphs"),
    ("convert", convert_command, "To and from ONNX Runtime's table, Q/DQ models, another TensorRT"),
):
    cache_app.command(_name, short_help=_summary)(_function)
