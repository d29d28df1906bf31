"""``calib data``: one file a sub-command."""

from __future__ import annotations

import typer

from calib.cli.data.check import check_command
from calib.cli.data.show import show_command

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Look at a recipe's data, and find what is wrong with it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _function, _summary, _example in (
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
):
    _name = _example.split()[0]
    data_app.command(_name, short_help=_summary, epilog=f"Example: calib data {_example}")(_function)
