from __future__ import annotations

import io

import pytest

from calib.progress import track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_line_at_the_end_elsewhere() -> None:
    out = io.StringIO()
    assert list(track([1, 2, 3], 3, "Counting", out)) == [1, 2, 3]
    assert out.getvalue().startswith("Counting: 3/3 done in ")
    assert out.getvalue().count("\n") == 1


def test_plain_lines_in_between_have_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 20.0, 40.0, 60.0, 80.0])
    monkeypatch.setattr("calib.progress.time.monotonic", lambda: next(clock))
    out = io.StringIO()
    list(track(range(3), 3, "Counting", out))
    assert out.getvalue().splitlines() == [
        "Counting: 1/3, 0.1/s, about 40 s left",
        "Counting: 2/3, 0.1/s, about 20 s left",
        "Counting: 3/3 done in 80.0 s",
    ]


def test_bar_on_a_terminal() -> None:
    out = Terminal()
    assert list(track([1, 2], 2, "Counting", out)) == [1, 2]
    assert "Counting" in out.getvalue()
    assert "2/2" in out.getvalue()


def test_errors_pass_through_without_a_closing_line() -> None:
    out = io.StringIO()
    steps = track([1, 2], 2, "Counting", out)
    assert next(steps) == 1
    with pytest.raises(KeyError, match="x"):
        steps.throw(KeyError("x"))
    assert out.getvalue() == ""


def test_few_items_pass_without_a_word() -> None:
    out = io.StringIO()
    assert list(track([1, 2, 3], 3, "Counting", out, least=4)) == [1, 2, 3]
    assert out.getvalue() == ""
    assert list(track([1, 2, 3], 3, "Counting", out, least=3)) == [1, 2, 3]
    assert out.getvalue().startswith("Counting: 3/3 done in ")
