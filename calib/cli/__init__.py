"""The command line: one thin file a sub-command, errors turned into exit statuses in one place."""

from __future__ import annotations

from calib.cli.app import main

__all__ = ["main"]
