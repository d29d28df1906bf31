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

for _name, _function, _summary in (
    ("show", show_command, "What the model will see: a contact sheet, ranges, classes"),
    ("check", check_command, "What is wrong with data and preprocessing; a gate"),
):
    data_app.command(_name, short_help=_summary)(_function)
