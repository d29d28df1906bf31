"""What becomes of a cache's provenance when a new cache is made from it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from calib.calibrators.cache import CalibrationCache
from calib.calibrators.provenance import Sidecar, read_sidecar, sidecar_path, write_with_sidecar
from calib.files import sha256_file

__all__ = ["changed_since", "differing_origins", "write_derived"]

_SAME_NAMES: Mapping[str, str] = MappingProxyType({})


def changed_since(path: str | os.PathLike[str], sidecar: Sidecar) -> bool:
    """Whether a cache's file is another than the one that its sidecar describes."""
    return sha256_file(path) != sidecar.cache_sha256


def differing_origins(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """What the sidecars of several caches say to differ between the models behind them, a line each.

    Caches without a sidecar are passed over.

    Raises:
        CacheError: A sidecar cannot be read.
    """
    known = [(path, sidecar) for path in paths if (sidecar := read_sidecar(path)) is not None]
    notes = []
    for what in ("graph", "weights"):
        for path, sidecar in known[1:]:
            if getattr(sidecar, f"{what}_sha256") != getattr(known[0][1], f"{what}_sha256"):
                notes.append(f"{known[0][0]} and {path} were made from models whose {what} differ")
                break
    return tuple(notes)


def write_derived(
    cache: CalibrationCache,
    out: str | os.PathLike[str],
    source: str | os.PathLike[str] | None,
    renamed: Mapping[str, str] = _SAME_NAMES,
) -> tuple[str, ...]:
    """Writes a cache that holds the same ranges as another, with that one's sidecar.

    Args:
        cache: The new cache.
        out: Its file.
        source: File of the cache that it was made from; None where there is no single one.
        renamed: Old tensor name → new name.

    Returns:
        What is worth knowing about the provenance, a line each.

    Raises:
        CacheError: The source's sidecar cannot be read.
        OutputError: A file cannot be written.
    """
    sidecar = None if source is None else read_sidecar(source)
    if source is not None and sidecar is not None and not changed_since(source, sidecar):
        write_with_sidecar(cache, _carried(sidecar, cache, renamed), out)
        return (f"provenance carried over to {sidecar_path(out)}",)
    cache.write(out)
    notes = []
    if sidecar is not None:
        notes.append(f"{source} was changed after its calibration, so its provenance was not carried over")
    if sidecar_path(out).exists():
        notes.append(f"{sidecar_path(out)} describes an earlier {out} and no longer fits: delete it")
    return tuple(notes)


def _carried(sidecar: Sidecar, cache: CalibrationCache, renamed: Mapping[str, str]) -> Sidecar:
    zero = (renamed.get(name, name) for name in sidecar.zero_tensors)
    return sidecar.model_copy(
        update={
            "cache_sha256": hashlib.sha256(cache.to_text().encode("utf-8")).hexdigest(),
            "header": cache.header,
            "zero_tensors": tuple(name for name in zero if name in cache),
        }
    )
