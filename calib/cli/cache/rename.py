"""``calib cache rename``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.calibrators import CalibrationCache
    from calib.calibrators.cache_edit import RenamedCache

__all__ = ["rename_command"]


def rename_command(
    file: Annotated[Path, typer.Argument(help="The calibration cache.", metavar="FILE")],
    out: Annotated[Path, typer.Option(help="The new cache.", show_default=False)],
    pairs: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="One name; may be repeated.")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option(help="JSON or YAML with 'old: new' a line; names that the cache lacks do no harm."),
    ] = None,
    regex: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="PATTERN REPLACEMENT", help="What to replace in every name; \\1 is a group."),
    ] = None,
    drop_unusable: Annotated[
        bool, typer.Option("--drop-unusable", help="Leave out entries whose scale INT8 cannot use.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Rename tensors of a calibration cache, for a graph that was edited. Scales keep their bits."""
    from calib.calibrators import CalibrationCache
    from calib.calibrators import cache_edit as edit
    from calib.calibrators.cache_provenance import write_derived
    from calib.cli.cache.output import check_output, emit, header_line, printable

    check_output(out, [file])
    cache = CalibrationCache.read(file)
    dropped: tuple[str, ...] = ()
    if drop_unusable:
        cache, dropped = edit.drop_unusable(cache, str(file))
    renamed = _rename(cache, file, pairs or (), map_file, regex)
    notes = write_derived(renamed.cache, out, file, renamed.renamed)
    payload = {
        "out": str(out),
        "header": renamed.cache.header,
        "tensors": len(renamed.cache),
        "renamed": renamed.renamed,
        "dropped": dropped,
        "notes": notes,
    }
    lines = [f"{printable(old)} → {printable(new)}" for old, new in renamed.renamed.items()]
    lines.append(f"{len(renamed.renamed)} of {len(renamed.cache)} tensors renamed.")
    lines.append(header_line(out, renamed.cache))
    emit(payload, lines, as_json)


def _rename(
    cache: CalibrationCache,
    file: Path,
    pairs: Sequence[str],
    map_file: Path | None,
    regex: tuple[str, str] | None,
) -> RenamedCache:
    from calib.calibrators.cache_edit import rename_by_map, rename_by_regex
    from calib.calibrators.name_map import read_name_map
    from calib.errors import UsageError

    if sum((bool(pairs), map_file is not None, regex is not None)) != 1:
        raise UsageError("Give one of --map OLD=NEW (may be repeated), --map-file and --regex.")
    if regex is not None:
        return rename_by_regex(cache, *regex, str(file))
    if map_file is not None:
        return rename_by_map(cache, read_name_map(map_file), str(file), every=False)
    return rename_by_map(cache, dict(_split(pair, cache) for pair in pairs), str(file))


def _split(pair: str, cache: CalibrationCache) -> tuple[str, str]:
    """Old and new name of ``OLD=NEW``; names may hold ``=`` where the cache tells which one is meant."""
    from calib.errors import UsageError

    places = [place for place, char in enumerate(pair) if char == "="]
    known = [place for place in places if pair[:place] in cache]
    if not places or len(known) > 1:
        raise UsageError(f"--map must read OLD=NEW, got {pair!r}. For names that hold '=', use --map-file.")
    place = (known or places)[0]
    return pair[:place], pair[place + 1 :]
