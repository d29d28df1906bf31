"""Files written whole or not at all, and their hashes."""

from __future__ import annotations

import codecs
import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from calib.errors import CalibError, OutputError, UsageError

__all__ = [
    "check_apart",
    "check_writable",
    "read_bounded",
    "read_bounded_text",
    "same_file",
    "sha256_file",
    "write_bytes",
    "write_text",
    "write_together",
]


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Writes a file so that a reader sees the old content or the new one, never a part.

    The content goes to a uniquely named temporary file beside the target, is flushed to the disk and
    renamed over the target. On any error the target is as it was and the temporary file is gone.

    Args:
        path: Target file. Its folder is created if needed.
        content: The whole content.

    Returns:
        The target's path.

    Raises:
        OutputError: The file cannot be written (no space, no permission, a folder in the way).
    """
    (target,) = write_together({Path(path): content})
    return target


def write_together(contents: Mapping[Path, bytes]) -> tuple[Path, ...]:
    """Writes files that belong together: none is replaced before all are on the disk.

    Args:
        contents: Target → its whole content. Folders are created if needed.

    Returns:
        The targets' paths.

    Raises:
        OutputError: One of them cannot be written; all targets are as they were.
    """
    staged: dict[Path, Path] = {}
    target = Path()
    try:
        for target, content in contents.items():
            _refuse_all_but_files(target)
            place = _behind_links(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            staged[target] = _stage(place, content)
        for target, temporary in staged.items():
            temporary.replace(_behind_links(target))
    except OSError as error:
        raise OutputError(_explain(target, error)) from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
    return tuple(staged)


def _behind_links(target: Path) -> Path:
    """Where a file is written: a link stays one, as where it is opened for writing."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def _stage(target: Path, content: bytes) -> Path:
    """Writes content to a temporary file beside its target."""
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    temporary, handle = _opened_beside(target, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            temporary.chmod(mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _opened_beside(target: Path, mode: int) -> tuple[Path, int]:
    """A new file of a name that no other has, and its descriptor.

    The system takes from the mode what an ordinary ``open`` lacks: mkstemp's 0600 would hide results from
    colleagues, and to ask for the mask means to change it, for files of other threads too.
    """
    while True:
        temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(4)}.tmp")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return temporary, os.open(temporary, flags, mode)
        except FileExistsError:
            continue


def _explain(target: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"Cannot write {target}: {reason}. Nothing was changed there. Free space or choose another path."


def write_text(path: str | os.PathLike[str], content: str) -> Path:
    """Writes text as UTF-8 with ``write_bytes``."""
    return write_bytes(path, content.encode("utf-8"))


def read_bounded(
    path: str | os.PathLike[str],
    what: str,
    error: type[CalibError],
    *,
    limit: int = 256 << 20,
    advice: str = "",
) -> bytes:
    """Reads a whole file that cannot be meant where it is very large.

    Args:
        path: The file.
        what: What it should be, for messages: "results file".
        error: What is raised.
        limit: Its largest size in bytes.
        advice: What to do where it cannot be read; may be empty.

    Raises:
        CalibError: It cannot be read, or is larger; of the type ``error``.
    """
    source = Path(path)
    try:
        with source.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as fault:
        reason = "no such file" if isinstance(fault, FileNotFoundError) else fault.strerror or str(fault)
        raise error(f"Cannot read {what} {source}: {reason}. {advice}".rstrip()) from fault
    if len(content) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} bytes"
        raise error(f"{source} is larger than {size}: not a {what}.")
    return content


def read_bounded_text(
    path: str | os.PathLike[str],
    what: str,
    error: type[CalibError],
    *,
    limit: int = 256 << 20,
    advice: str = "",
) -> str:
    """Reads a text file with ``read_bounded``; a byte order mark is passed over.

    Raises:
        CalibError: It cannot be read, is larger, or is not UTF-8; of the type ``error``.
    """
    content = read_bounded(path, what, error, limit=limit, advice=advice)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        if b"\0" in content and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise error(f"{os.fspath(path)} is not a {what}: it is no text. {advice}".rstrip()) from fault
        line = content.count(b"\n", 0, fault.start) + 1
        raise error(f"{os.fspath(path)}, line {line}: not UTF-8 text. Save it as UTF-8.") from fault


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Refuses an output path that cannot be written, before hours are spent on its content.

    Args:
        path: The file that is going to be written.

    Returns:
        The same path.

    Raises:
        OutputError: The path is a folder, a device or a pipe, or its folder cannot be created or written to.
    """
    target = Path(path)
    _refuse_all_but_files(target)
    folder = _behind_links(target).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise OutputError(f"Cannot write {target}: {folder} is a file, not a folder. Choose another path.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"Cannot write {target}: no permission in {folder.absolute()}. Choose another path."
        )
    return target


def _refuse_all_but_files(target: Path) -> None:
    """Renaming puts a file in the place of what is there: of /dev/null too, for every program."""
    if target.is_dir():
        raise OutputError(f"Cannot write {target}: it is a folder. Give a file's path.")
    if target.exists() and not target.is_file():
        raise OutputError(f"Cannot write {target}: it is a device or a pipe. Give a file's path.")


def check_apart(
    out: str | os.PathLike[str], inputs: Mapping[str, str | os.PathLike[str] | None], option: str = "--out"
) -> None:
    """Refuses an output that would replace a file that the same command reads.

    Args:
        out: The file that is going to be written.
        inputs: What it is, such as "recipe" → the file; None where there is none.
        option: What the output is given by, for the message.

    Raises:
        UsageError: It is one of the inputs.
    """
    for what, source in inputs.items():
        if source is not None and same_file(out, source):
            raise UsageError(f"{option} {out} is the {what} itself. Choose another file.")


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to one file, by links too; files that are not there are told by their paths."""
    one, other = Path(first), Path(second)
    try:
        if one.exists() and other.exists():
            return one.samefile(other)
        return one.resolve() == other.resolve()
    # No name of a file, such as text of a recipe that is none.
    except (OSError, ValueError):
        return False


def sha256_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits, read in pieces."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
