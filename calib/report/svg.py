"""Charts as SVG text: rendering, and what the page and the file beside it need."""

from __future__ import annotations

import io
from typing import Any
from xml.etree import ElementTree

from calib.errors import require
from calib.report.palette import ROLES

__all__ = ["inline_svg", "render_svg", "standalone_svg"]

_SVG = "http://www.w3.org/2000/svg"
_PURPOSE = "Writing a report"


def render_svg(chart: Any) -> str:
    """Draws an altair chart, without any browser or network.

    Args:
        chart: An ``altair`` chart that carries its data.

    Raises:
        MissingExtraError: vl-convert is not installed.
    """
    require("vl_convert", "report", _PURPOSE)
    stream = io.StringIO()
    chart.save(stream, format="svg")
    return stream.getvalue()


def inline_svg(svg: str) -> str:
    """The SVG for use inside HTML: scales with its frame, points tell their figures on hover."""
    root = _parse(svg)
    width, height = root.attrib.pop("width"), root.attrib.pop("height")
    root.set("viewBox", f"0 0 {width} {height}")
    root.set("style", f"max-width:{width}px")
    root.set("aria-hidden", "true")
    root.set("focusable", "false")
    return _text(root)


def standalone_svg(svg: str, title: str, description: str) -> str:
    """The SVG as a file of its own, on a light card that is legible on any page.

    Args:
        svg: A rendered chart without background.
        title: Its name.
        description: The chart in words.
    """
    root = _parse(svg)
    root.set("role", "img")
    card = ElementTree.Element(f"{{{_SVG}}}rect", width="100%", height="100%", fill=ROLES["surface"].light)
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(f"{{{_SVG}}}{tag}")
        element.text = text
        root.insert(position, element)
    root.insert(2, card)
    return _text(root) + "\n"


def _parse(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    for element in list(root.iter()):
        label = element.attrib.pop("aria-label", None)
        if label and element.get("aria-roledescription") not in {"axis", "legend"}:
            tip = ElementTree.Element(f"{{{_SVG}}}title")
            tip.text = label
            element.insert(0, tip)
    return root


def _text(root: ElementTree.Element) -> str:
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")
