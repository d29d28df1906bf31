"""The sidecar of a calibration cache: what made it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calib.calibrators.cache import CalibrationCache
from calib.errors import CacheError
from calib.files import read_bounded, write_together

__all__ = [
    "SIDECAR_SCHEMA",
    "Origin",
    "Sidecar",
    "cache_files",
    "read_sidecar",
    "sidecar_path",
    "write_with_sidecar",
]

SIDECAR_SCHEMA = 1

_MAX_BYTES = 64 << 20


class Origin(BaseModel):
    """Everything that decides which ranges come out.

    Attributes:
        calib_version: Version of calib.
        method: "entropy", "minmax", "percentile" or "mse"; "native-entropy" and so on where
            TensorRT itself calibrated.
        options: Options of the method, such as the percentile.
        model: File name of the model.
        model_sha256: Hash of the model file.
        graph_sha256: Hash of the graph without its weights.
        weights_sha256: Hash of the weights.
        dataset: Name of the calibration dataset.
        recipe: File name of the recipe; empty where a dataset was given from Python.
        dataset_fingerprint: Fingerprint of the selected samples.
        preprocess: How samples were preprocessed.
        samples: Number of samples.
        batch_size: Samples a batch; entropy depends on it a little.
        seed: Seed of the selection; None where nothing was selected.
        sample_ids: Every sample, in order.
        versions: Versions of the software that computes the activations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    calib_version: str
    method: str
    options: dict[str, float] = {}
    model: str
    model_sha256: str
    graph_sha256: str
    weights_sha256: str
    dataset: str
    recipe: str
    dataset_fingerprint: str
    preprocess: dict[str, Any]
    samples: int
    batch_size: int
    seed: int | None
    sample_ids: tuple[str, ...]
    versions: dict[str, str]

    def differences(self, other: Origin) -> tuple[str, ...]:
        """What differs from another origin, in words, each with both values where they are short."""
        found = [name for name, field in _HASHED.items() if getattr(self, field) != getattr(other, field)]
        for name, field in _SHOWN.items():
            mine, theirs = getattr(self, field), getattr(other, field)
            if mine != theirs:
                found.append(f"{name} ({mine} and {theirs})")
        for package in sorted(self.versions.keys() | other.versions.keys()):
            mine, theirs = self.versions.get(package), other.versions.get(package)
            if mine != theirs:
                found.append(f"version of {package} ({mine} and {theirs})")
        return tuple(found)


_HASHED = {
    "model weights": "weights_sha256",
    "model graph": "graph_sha256",
    "calibration data": "dataset_fingerprint",
    "preprocessing": "preprocess",
    "order of the samples": "sample_ids",
}
_SHOWN = {
    "method": "method",
    "options of the method": "options",
    "number of samples": "samples",
    "batch size": "batch_size",
    "seed": "seed",
    "version of calib": "calib_version",
}


class Sidecar(Origin):
    """Provenance of a calibration cache, stored as ``MODEL.cache.json`` beside it.

    Attributes:
        schema_version: Version of this layout.
        created: UTC time, ISO 8601.
        cache_sha256: Hash of the cache file.
        header: First line of the cache.
        batches_asked: Number of batches asked for.
        batches_used: Number of batches counted; equal, or the run would have failed.
        zero_tensors: Tensors that were zero on all samples.
    """

    schema_version: int = Field(alias="schema", default=SIDECAR_SCHEMA)
    created: str
    cache_sha256: str
    header: str
    batches_asked: int
    batches_used: int
    zero_tensors: tuple[str, ...]


def cache_files(cache: object) -> dict[str, Path]:
    """The files of a cache that is given by its path, by what they are; of any other none."""
    if not isinstance(cache, (str, os.PathLike)):
        return {}
    return {"calibration cache": Path(cache), "calibration cache's provenance": sidecar_path(cache)}


def sidecar_path(cache: str | os.PathLike[str]) -> Path:
    """Where the sidecar of a cache lies: ``MODEL.cache`` → ``MODEL.cache.json``."""
    path = Path(cache)
    # Not with_name, which fails for "" and "/": what is wrong with them is said where they are opened.
    return path.parent / (path.name + ".json")


def write_with_sidecar(cache: CalibrationCache, sidecar: Sidecar, path: str | os.PathLike[str]) -> Path:
    """Writes a cache and its sidecar: both or none.

    Raises:
        OutputError: One of them cannot be written.
    """
    text = sidecar.model_dump_json(by_alias=True, indent=1) + "\n"
    contents = {Path(path): cache.to_text().encode(), sidecar_path(path): text.encode()}
    return write_together(contents)[0]


def read_sidecar(cache: str | os.PathLike[str]) -> Sidecar | None:
    """Reads the sidecar of a cache.

    Args:
        cache: Path of the cache, not of the sidecar.

    Returns:
        The sidecar; None where there is none, as beside a cache that TensorRT wrote.

    Raises:
        CacheError: There is one, but it cannot be read.
    """
    path = sidecar_path(cache)
    if not path.exists():
        return None
    try:
        sidecar = Sidecar.model_validate_json(read_bounded(path, "sidecar", CacheError, limit=_MAX_BYTES))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise CacheError(
            f"{path} is not the sidecar of a calibration cache: {place}: {first['msg']}. "
            "Delete it to use the cache without provenance, or calibrate again."
        ) from error
    if sidecar.schema_version != SIDECAR_SCHEMA:
        raise CacheError(
            f"{path} has schema {sidecar.schema_version}, this calib reads {SIDECAR_SCHEMA}. Use the calib "
            "that wrote it, or calibrate again."
        )
    return sidecar
