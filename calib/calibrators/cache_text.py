"""The text of a file that holds ranges, as editors and shells leave it."""

from __future__ import annotations

import codecs

from calib.errors import CacheError

__all__ = ["WIDE_MARKS", "decode_text"]

WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The first bytes of UTF-16 text, as PowerShell writes it with ``>``."""


def decode_text(content: bytes, source: str, form: str) -> str:
    r"""The text of a file in UTF-8; a byte order mark, which editors on Windows write, is passed over.

    Args:
        content: The file's bytes.
        source: Its name in messages.
        form: What it should be, for messages: "a calibration cache".

    Raises:
        CacheError: It is no such text.

    >>> decode_text(b"\xef\xbb\xbfx 1", "x.cache", "a table")
    'x 1'
    """
    if content.startswith(WIDE_MARKS):
        raise CacheError(f"{source} is UTF-16 text, as PowerShell's > writes it. Save it as UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CacheError(
            f"{source} is not {form}: byte {error.start} is no text. "
            "ONNX Runtime's tables and Q/DQ models become a cache with: calib cache convert"
        ) from error
