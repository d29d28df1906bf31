"""What a calibration cache was made of, and whether it fits what is validated now."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.data import Dataset, Recipe, fingerprint, open_calibration
from calib.errors import UsageError, ValidationError
from calib.files import sha256_file
from calib.validation.naming import RunName, method_of, unique_names
from calib.validation.results import CalibrationRecord

if TYPE_CHECKING:
    from calib.calibrators import CalibrationCache, Sidecar
    from calib.graph import OnnxModel

__all__ = ["Calibration", "differing_keys", "read_calibrations"]

_NESTED = (Mapping, list, tuple)

_RESIZER = ("resizer", "interpolation", "antialias")
_RESIZING = ("resize", "crop_fraction", "letterbox")


@dataclass(frozen=True)
class Calibration:
    """A calibration cache with its sidecar.

    Attributes:
        path: The cache file.
        cache: Tensor name → scale.
        sidecar: What made it; None where there is none, as beside a cache that TensorRT wrote.
        sha256: Hash of the cache file.
        run: What the INT8 run with it is called.
    """

    path: Path
    cache: CalibrationCache
    sidecar: Sidecar | None
    sha256: str
    run: RunName

    @property
    def sample_ids(self) -> frozenset[str]:
        """Ids of the calibration samples; empty where they are not known."""
        return frozenset(self.sidecar.sample_ids if self.sidecar else ())

    def record(self, dataset: Dataset) -> CalibrationRecord:
        """The cache as results keep it.

        Args:
            dataset: The validation dataset, after calibration samples were left out.
        """
        sidecar = self.sidecar
        return CalibrationRecord(
            name=self.run.calibration,
            cache=str(self.path),
            sha256=self.sha256,
            header=self.cache.header,
            algorithm=self.cache.algorithm,
            tensors=len(self.cache),
            samples=sidecar.samples if sidecar else None,
            batch_size=sidecar.batch_size if sidecar else None,
            seed=sidecar.seed if sidecar else None,
            dataset=sidecar.dataset if sidecar else None,
            overlap=self._overlap(dataset) if sidecar else None,
            scales_sha256=_scales_digest(self.cache),
        )

    def check(self, recipe: Recipe | None) -> None:
        """Refuses a recipe that resizes images otherwise than the calibration did.

        The same words, such as "bilinear to 224", give other pixels with another resizer or kernel. Other
        differences of the preprocessing are warned of.

        Args:
            recipe: The recipe of the validation data; None for a dataset from Python.

        Raises:
            ValidationError: Resizer, kernel or antialiasing differ.
        """
        if self.sidecar is None or recipe is None:
            return
        before, now = self.sidecar.preprocess, recipe.preprocess
        if not any(step in record for step in _RESIZING for record in (before, now)):
            return
        keys = [key for key in _RESIZER if key in before and key in now]
        differing = differing_keys({key: before[key] for key in keys}, {key: now[key] for key in keys})
        if differing:
            raise ValidationError(
                f"{self.path} was calibrated on images that were resized otherwise: {'; '.join(differing)}. "
                "Calibrate again with this recipe, or validate with the one of the calibration."
            )

    def warnings(self, model: OnnxModel, recipe: Recipe | None, dataset: Dataset) -> tuple[str, ...]:
        """What has changed since the calibration, or cannot be known.

        Args:
            model: The model under test.
            recipe: The recipe of the validation data; None for a dataset from Python.
            dataset: The validation dataset, after calibration samples were left out.
        """
        if self.sidecar is None:
            return (
                f"{self.path} has no sidecar ({self.path.name}.json): which model, data and preprocessing "
                "made it is unknown, and calibration samples may be among the validation samples.",
            )
        found = [*self._file_warnings(model), *self._overlap_warnings(dataset)]
        if recipe is not None:
            found.extend(self._recipe_warnings(self.sidecar, recipe))
        return tuple(found)

    def _overlap(self, dataset: Dataset) -> int:
        return len(self.sample_ids.intersection(dataset.ids))

    def _file_warnings(self, model: OnnxModel) -> list[str]:
        from calib.graph.cache_model import lint_provenance

        assert self.sidecar is not None
        found = []
        if self.sidecar.cache_sha256 != self.sha256:
            found.append(f"{self.path} was changed after its calibration: its sidecar has another hash.")
        findings = lint_provenance(self.sidecar, model)
        return [*found, *(f"{self.path}: {finding.message}" for finding in findings)]

    def _overlap_warnings(self, dataset: Dataset) -> list[str]:
        shared = self._overlap(dataset)
        if not shared:
            return []
        return [
            f"{shared} of {len(dataset)} validation samples were calibrated on for {self.path}: the accuracy "
            f"of {self.run.label} may be flattered. Leave out --allow-overlap (allow_overlap in the "
            "recipe) to keep them apart."
        ]

    def _recipe_warnings(self, sidecar: Sidecar, recipe: Recipe) -> list[str]:
        differing = differing_keys(sidecar.preprocess, recipe.preprocess)
        if sidecar.preprocess and differing:
            return [
                f"Preprocessing differs from that which {self.path} was made with, so the ranges may not "
                f"fit: {'; '.join(differing)}. Calibrate again with this recipe."
            ]
        if sidecar.recipe == recipe.path.name and self._data_changed(sidecar, recipe):
            return [
                f"The calibration data of {recipe.path} has changed since {self.path} was made: "
                "another fingerprint. Calibrate again."
            ]
        return []

    @staticmethod
    def _data_changed(sidecar: Sidecar, recipe: Recipe) -> bool:
        chosen = open_calibration(recipe, samples=sidecar.samples, seed=sidecar.seed)
        return fingerprint(chosen) != sidecar.dataset_fingerprint


def _scales_digest(cache: Mapping[str, float]) -> str:
    """Hash of names and scales, in the order of names: another header or order does not change it."""
    text = "".join(f"{len(name)}:{name}={float(scale).hex()};" for name, scale in sorted(cache.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_calibrations(paths: Sequence[str | os.PathLike[str]]) -> tuple[Calibration, ...]:
    """Reads calibration caches and, where there are any, their sidecars.

    Args:
        paths: The cache files.

    Raises:
        CacheError: One of them, or a sidecar, cannot be read.
        UsageError: Two of them are the same.
    """
    from calib.calibrators import CalibrationCache, read_sidecar

    files = [Path(path) for path in paths]
    caches = [CalibrationCache.read(path) for path in files]
    digests = [sha256_file(path) for path in files]
    _check_different(files, digests)
    sidecars = [read_sidecar(path) for path in files]
    methods = [
        sidecar.method if sidecar else method_of(cache.algorithm)
        for cache, sidecar in zip(caches, sidecars, strict=True)
    ]
    names = unique_names(methods, [path.stem for path in files])
    runs = [RunName("int8", name, several=len(files) > 1) for name in names]
    return tuple(Calibration(*parts) for parts in zip(files, caches, sidecars, digests, runs, strict=True))


def _check_different(files: Sequence[Path], digests: Sequence[str]) -> None:
    first: dict[str, Path] = {}
    for path, digest in zip(files, digests, strict=True):
        if digest in first:
            raise UsageError(
                f"Calibration cache {path} is the same as {first[digest]}, byte for byte: there is nothing "
                "to compare. Give each cache once."
            )
        first[digest] = path


def differing_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Entries of two records that differ, as "key: before → now", nested keys joined by dots.

    >>> differing_keys({"mean": 0.5}, {"mean": (0.4, 0.5)})
    ['mean: 0.5 → [0.4, 0.5]']
    >>> differing_keys({"scale": 255, "resize": {"size": 32}}, {"scale": 1, "resize": {"size": 32}})
    ['scale: 255 → 1']
    """
    old, new = _flat(before), _flat(now)
    return [
        f"{key}: {old.get(key, '(not set)')} → {new.get(key, '(not set)')}"
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    ]


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Nested mappings as one level, lists of plain values whole: JSON has lists where Python has tuples."""
    if isinstance(value, Mapping) and value:
        items = ((f"{key}.{name}" if key else str(name), item) for name, item in value.items())
    elif isinstance(value, (list, tuple)) and not any(isinstance(item, _NESTED) for item in value):
        return {key: list(value)}
    elif isinstance(value, (list, tuple)):
        items = ((f"{key}[{number}]", item) for number, item in enumerate(value))
    else:
        return {key: value}
    return {name: leaf for inner, item in items for name, leaf in _flat(item, inner).items()}
