"""``calib cache``: one file a sub-command."""

from __future__ import annotations

from calib.cli.cache.convert import convert_command
from calib.cli.cache.diff import diff_command
from calib.cli.cache.lint import lint_command
from calib.cli.cache.merge import merge_command
from calib.cli.cache.rename import rename_command
from calib.cli.cache.show import show_command
from calib.cli.groups import add_commands, make_app

__all__ = ["cache_app"]

cache_app = make_app("Show, check, compare and edit calibration caches.")

_COMMANDS = (
    (show_command, "Table of tensors, scales and ranges", "show model.cache --sort scale"),
    (lint_command, "What is wrong with a cache; a gate", "lint model.cache --model model.onnx"),
    (diff_command, "Two caches by ratio", "diff old.cache new.cache --max-ratio 1.05"),
    (merge_command, "Several caches → one", "merge a.cache b.cache --out both.cache"),
    (
        rename_command,
        "New tensor names, for edited graphs",
        "rename model.cache --map conv1=stem --out new.cache",
    ),
    (
        convert_command,
        "To and from ONNX Runtime's table, Q/DQ models, another TensorRT",
        "convert model.cache model.json --to onnxruntime-json",
    ),
)

add_commands(cache_app, "calib cache", _COMMANDS)
