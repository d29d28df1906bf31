"""Words of messages: those that go by a number, names that were probably meant, others' in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["as_several", "counted", "inflected", "one_line", "sentence", "suggestion"]

_FORMS = re.compile(r"\[([^\[\]|]*)(?:\|([^\[\]|]*))?\]")


def as_several(given: Iterable[str]) -> tuple[str, ...]:
    """What may be several names, where a single one may have been given as it is.

    >>> as_several("conv1"), as_several(["conv1", "fc"]), as_several(())
    (('conv1',), ('conv1', 'fc'), ())
    """
    return (given,) if isinstance(given, str) else tuple(given)


def inflected(number: int, words: str) -> str:
    """Words in the singular or plural: ``[s]`` is for the plural alone, of ``[is|are]`` it is the second.

    >>> inflected(1, "class[es] that [has|have] no image"), inflected(2, "class[es] that [has|have] no image")
    ('class that has no image', 'classes that have no image')
    """

    def form(found: re.Match[str]) -> str:
        first, second = found.groups()
        singular, plural = ("", first) if second is None else (first, second)
        return str(singular if number == 1 else plural)

    return _FORMS.sub(form, words)


def counted(number: int, words: str) -> str:
    """A number and the words that go by it, see ``inflected``.

    >>> counted(1, "sample[s]"), counted(0, "box[es]"), counted(1285, "entr[y|ies]")
    ('1 sample', '0 boxes', '1285 entries')
    """
    return f"{number} {inflected(number, words)}"


def one_line(message: object) -> str:
    r"""A message of somebody else's, such as an exception, without its line ends and indents.

    >>> one_line(ValueError("no kernel:\n   Conv"))
    'no kernel: Conv'
    """
    return " ".join(str(message).split())


def sentence(text: str) -> str:
    """A message that begins small as a sentence: with a capital, and one full stop, or that there is more.

    >>> sentence("the weights have changed"), sentence("it has no entries."), sentence("added: a, b …")
    ('The weights have changed.', 'It has no entries.', 'Added: a, b …')
    """
    return text[0].upper() + (text[1:] if text.endswith("…") else f"{text[1:].removesuffix('.')}.")


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`` Did you mean 'x'?`` with a blank before it, or nothing.

    Args:
        name: What was given.
        known: What could be meant.
        cutoff: How alike the two must be, from 0 to 1.

    >>> suggestion("sampels", ["samples", "seed"])
    " Did you mean 'samples'?"
    """
    import difflib

    close = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f" Did you mean {close[0]!r}?" if close else ""
