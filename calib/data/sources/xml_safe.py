"""XML without document types and entities: those can read other files, or grow without bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from calib.errors import DatasetError
from calib.files import read_bounded

__all__ = ["read_xml"]

_MOST = 16 << 20


def read_xml(path: Path) -> Element:
    """Reads an XML file.

    Args:
        path: The file, at most 16 MiB.

    Raises:
        DatasetError: The file cannot be read, is no XML, or declares a document type.
    """
    raw = read_bounded(path, "annotation", DatasetError, limit=_MOST)
    parser, builder = expat.ParserCreate(), TreeBuilder()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(raw, True)
        return builder.close()
    except _DoctypeError as error:
        raise DatasetError(
            f"{path} declares a document type, which is not read: it can pull in other files. Remove it."
        ) from error
    except (expat.ExpatError, ValueError, AssertionError) as error:
        raise DatasetError(f"{path} is not XML: {error}.") from error


class _DoctypeError(Exception):
    pass


def _refuse(*_: Any) -> None:
    raise _DoctypeError
