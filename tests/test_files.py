from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from calib.errors import CacheError, DatasetError, OutputError, ValidationError
from calib.files import (
    check_writable,
    read_bounded,
    read_bounded_text,
    sha256_file,
    write_bytes,
    write_text,
    write_together,
)


def test_write_makes_folders_and_gives_the_usual_mode(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a" / "b.txt", "ä")
    assert path.read_bytes() == "ä".encode()
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_the_mask_of_the_process_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one for all threads: what changes it, if only to read it, gives files of others another mode."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as watched:
            watched.setattr("os.umask", lambda _: pytest.fail("the mask was changed"))
            path = write_text(tmp_path / "a", "1")
        assert path.stat().st_mode & 0o777 == 0o666 & ~0o027 == 0o640
    finally:
        os.umask(before)


def test_a_name_that_is_taken_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".a.00000000.tmp").write_text("of another")
    names = iter(["00000000", "00000001"])
    monkeypatch.setattr("calib.files.secrets.token_hex", lambda _: next(names))
    assert write_text(tmp_path / "a", "1").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.00000000.tmp", "a"]


def test_overwriting_keeps_the_mode(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a", "1")
    path.chmod(0o640)
    write_text(path, "2")
    assert path.stat().st_mode & 0o777 == 0o640


def test_failed_write_keeps_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_text(tmp_path / "a", "old")

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("calib.files.os.fsync", no_space)
    with pytest.raises(OutputError, match=r"Cannot write .*a: No space left on device\. Nothing was changed"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_belong_together_are_written_all_or_none(tmp_path: Path) -> None:
    first, second = write_together({tmp_path / "a": b"1", tmp_path / "b" / "c": b"2"})
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Cannot write .*file/x"):
        write_together({first: b"new", tmp_path / "file" / "x": b"3"})
    assert first.read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_for_real(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="Cannot write /dev/full/x"):
        write_bytes("/dev/full/x", b"1")


def _write_many(path: str, letter: str) -> None:
    for _ in range(50):
        write_bytes(path, letter.encode() * 100_000)


def test_readers_see_whole_files_while_many_write(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"z" * 100_000)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(path), letter)) for letter in "abcd"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        content = path.read_bytes()
        assert len(content) == 100_000
        assert len(set(content)) == 1
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert list(tmp_path.iterdir()) == [path]


def test_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"z" * 100_000)
    writer = multiprocessing.get_context("spawn").Process(target=_write_many, args=(str(path), "b"))
    writer.start()
    deadline = time.monotonic() + 30
    while path.read_bytes()[:1] == b"z" and time.monotonic() < deadline:
        time.sleep(0.001)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    content = path.read_bytes()
    assert len(content) == 100_000
    assert len(set(content)) == 1


def test_check_writable_says_what_is_in_the_way(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "new" / "file") == tmp_path / "new" / "file"
    with pytest.raises(OutputError, match="it is a folder"):
        check_writable(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file, not a folder"):
        check_writable(tmp_path / "file" / "below")


def test_missing_permission_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calib.files.os.access", lambda *_: False)
    with pytest.raises(OutputError, match=rf"Cannot write a: no permission in {re.escape(str(tmp_path))}\. "):
        check_writable("a")


def test_a_link_stays_one(tmp_path: Path) -> None:
    """As where a program opens it for writing: what it leads to is written, be it there or not."""
    (tmp_path / "shared").mkdir()
    for name in ("there", "new"):
        (tmp_path / name).symlink_to(tmp_path / "shared" / name)
    write_text(tmp_path / "shared" / "there", "old")
    for name in ("there", "new"):
        assert write_text(check_writable(tmp_path / name), "now") == tmp_path / name
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "shared" / name).read_text() == "now"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "new", "shared", "there", "there"]


def test_devices_pipes_and_folders_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    # By a link, so that a fault here replaces the link and not the machine's /dev/null.
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "folder").mkdir()
    other = "a device or a pipe"
    for name, kind in (("pipe", other), ("null", other), ("folder", "a folder")):
        message = rf"Cannot write .*{name}: it is {kind}\. Give a file's path"
        for write in (check_writable, partial(write_bytes, content=b"1")):
            with pytest.raises(OutputError, match=message):
                write(tmp_path / name)
        with pytest.raises(OutputError, match=message):
            write_together({tmp_path / "first": b"1", tmp_path / name: b"2"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "null", "pipe"]
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "null").is_char_device()


def test_sha256_is_the_usual_one(tmp_path: Path) -> None:
    # The SHA-256 of "abc", FIPS 180-2, appendix B.1.
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(write_text(tmp_path / "a", "abc")) == digest


class TestReadingWithinBounds:
    def test_a_file_is_read_whole(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"12345")
        assert read_bounded(tmp_path / "f", "results file", ValidationError, limit=5) == b"12345"

    def test_a_larger_one_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"123456")
        with pytest.raises(ValidationError, match="f is larger than 5 bytes: not a results file"):
            read_bounded(tmp_path / "f", "results file", ValidationError, limit=5)
        with (tmp_path / "f").open("r+b") as stream:
            stream.truncate((1 << 20) + 1)
        with pytest.raises(CacheError, match="larger than 1 MiB: not a sidecar"):
            read_bounded(tmp_path / "f", "sidecar", CacheError, limit=1 << 20)

    def test_what_cannot_be_read_says_why_and_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(CacheError, match=r"Cannot read sidecar .*none: no such file\. Make one\.$"):
            read_bounded(tmp_path / "none", "sidecar", CacheError, advice="Make one.")
        with pytest.raises(CacheError, match=r"Cannot read sidecar .*: Is a directory"):
            read_bounded(tmp_path, "sidecar", CacheError)

    def test_text_without_its_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes("\ufeffgrün\n".encode())
        assert read_bounded_text(tmp_path / "f", "list", DatasetError) == "grün\n"

    def test_text_that_is_not_utf_8_names_the_line(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"a\nb\n\xff\n")
        with pytest.raises(DatasetError, match=r"f, line 3: not UTF-8 text\. Save it as UTF-8\."):
            read_bounded_text(tmp_path / "f", "list", DatasetError)

    def test_binary_files_are_told_from_text_that_is_saved_otherwise(self, tmp_path: Path) -> None:
        # The first bytes of an ONNX model: field 1 (ir_version) is 7, field 2 is the producer's name.
        (tmp_path / "f").write_bytes(b"\x08\x07\x12\x02\xc3\x00")
        with pytest.raises(DatasetError, match=r"f is not a recipe: it is no text\. Give a YAML file\.$"):
            read_bounded_text(tmp_path / "f", "recipe", DatasetError, advice="Give a YAML file.")
        (tmp_path / "f").write_text("schema: 1", encoding="utf-16")
        with pytest.raises(DatasetError, match=r"f, line 1: not UTF-8 text\. Save it as UTF-8\."):
            read_bounded_text(tmp_path / "f", "recipe", DatasetError)
