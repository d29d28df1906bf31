"""The report as one HTML file that needs nothing else: no network, no scripts, no fonts."""

from __future__ import annotations

from pathlib import Path

from calib.errors import require
from calib.report.blocks import Document
from calib.report.palette import ROLES
from calib.report.svg import inline_svg

__all__ = ["to_html"]

_TEMPLATES = Path(__file__).parent / "templates"


def to_html(document: Document) -> str:
    """Fills the page's template; everything but our own charts is escaped.

    Args:
        document: The content.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    jinja2 = require("jinja2", "report", "Writing a report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    markup = require("markupsafe", "report", "Writing a report").Markup
    environment.filters["inline_svg"] = lambda svg: markup(inline_svg(svg))
    page: str = environment.get_template("report.html.j2").render(document=document, roles=ROLES)
    return page
