"""``calib data``: one file a sub-command."""

from __future__ import annotations

from calib.cli.data.check import check_command
from calib.cli.data.show import show_command
from calib.cli.groups import add_commands, make_app

__all__ = ["data_app"]

data_app = make_app("Look at a recipe's data, and find what is wrong with it.")

_COMMANDS = (
    (
        show_command,
        "What the model will see: a contact sheet, ranges, classes",
        "show recipe.yaml --out sheet.png",
    ),
    (
        check_command,
        "What is wrong with data and preprocessing; a gate",
        "check recipe.yaml --model model.onnx",
    ),
)

add_commands(data_app, "calib data", _COMMANDS)
