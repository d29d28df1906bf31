"""An engine and the record of what made it: ``MODEL.engine`` and beside it ``MODEL.engine.json``."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from calib.errors import EngineError
from calib.files import read_bounded, write_together

__all__ = ["RECORD_SCHEMA", "BuildRecord", "Engine", "record_path"]

RECORD_SCHEMA = 1
_UNKNOWN = "unknown"
_MAX_RECORD_BYTES = 16 << 20


@dataclass(frozen=True)
class BuildRecord:
    """What made an engine.

    Attributes:
        precision: What was asked for: "fp32", "fp16", "int8" or "best".
        route: "float", "implicit INT8" (calibration cache) or "explicit INT8" (Q/DQ nodes).
        level: Builder optimization level; None for the builder's default.
        tensorrt: Version that built it.
        flavour: "tensorrt" or "tensorrt_rtx".
        device: GPU that it was built for.
        compute_capability: Of that GPU, such as (9, 0); None where unknown.
        shapes: Range of each input: "image:1x3x224x224:8x3x224x224:32x3x224x224".
        tf32: Whether FP32 layers may be computed in TF32.
        build_seconds: Time of the build.
        plan_bytes: Size of the engine.
        plan_sha256: Its hash.
        model: File name of the model.
        model_sha256: Hash of the model file; that of its weights beside it is in ``key``.
        cache_sha256: Hash of the calibration cache; None where there was none.
        key: Hash of everything that made it, by which it is found again; empty where it was calibrated
            during the build, from data that have no hash.
        from_cache: Whether this engine was found and not built.
        warnings: What the builder warned of, each line once.
        notes: What else is to know.
    """

    precision: str
    route: str
    level: int | None
    tensorrt: str
    flavour: str
    device: str
    compute_capability: tuple[int, int] | None
    shapes: tuple[str, ...]
    tf32: bool
    build_seconds: float
    plan_bytes: int
    plan_sha256: str
    model: str
    model_sha256: str
    cache_sha256: str | None
    key: str
    from_cache: bool = False
    warnings: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return {"schema": RECORD_SCHEMA, **asdict(self)}


@dataclass(frozen=True)
class Engine:
    """A serialized engine.

    Attributes:
        plan: TensorRT's bytes.
        record: What made it.
        path: Its file; None where it was not saved.
    """

    plan: bytes = field(repr=False)
    record: BuildRecord
    path: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> Engine:
        """Writes the engine and its record, both or neither.

        Args:
            path: The engine's file; the record goes to ``record_path(path)``.

        Returns:
            The same engine with that path.

        Raises:
            OutputError: They cannot be written.
        """
        target = Path(path)
        text = json.dumps(self.record.as_dict(), indent=1)
        write_together({target: self.plan, record_path(target): text.encode("utf-8")})
        return replace(self, path=target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Engine:
        """Reads an engine and its record; an engine that trtexec built has none, and is read without.

        Nothing is handed to TensorRT: whether it fits this machine shows when it is run.

        Raises:
            EngineError: No such file, it is empty, or the record beside it is of another engine.
        """
        source = Path(path)
        try:
            plan = source.read_bytes()
        except OSError as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
            raise EngineError(
                f"Cannot read engine {source}: {reason}. Build one: calib build MODEL.onnx --out {source}"
            ) from error
        if not plan:
            raise EngineError(f"{source} is empty: not an engine. Build it again with calib build.")
        return cls(plan, _read_record(source, plan), source)


def record_path(path: str | os.PathLike[str]) -> Path:
    """The file beside an engine that says what made it.

    >>> str(record_path("m.engine"))
    'm.engine.json'
    """
    return Path(f"{os.fspath(path)}.json")


def _read_record(source: Path, plan: bytes) -> BuildRecord:
    file = record_path(source)
    if not file.exists():
        return _foreign(plan)
    try:
        content = json.loads(read_bounded(file, "record of an engine", EngineError, limit=_MAX_RECORD_BYTES))
        schema = content.pop("schema", None) if isinstance(content, dict) else None
        if schema != RECORD_SCHEMA:
            raise EngineError(
                f"{file} is no record of schema {RECORD_SCHEMA} (it says {schema!r}): written by another "
                "version of calib, or another file. Build the engine again, or delete the record."
            )
        record = TypeAdapter(BuildRecord).validate_python(content, strict=False)
    except (ValueError, ValidationError) as error:
        raise EngineError(f"{file} cannot be read: {error}. Build the engine again, or delete it.") from error
    if hashlib.sha256(plan).hexdigest() != record.plan_sha256:
        raise EngineError(
            f"{file} is the record of another engine than {source}: hashes differ. One of them was "
            "replaced or cut off. Build the engine again, or delete the record if the engine is right."
        )
    return record


def _foreign(plan: bytes) -> BuildRecord:
    """The record of an engine that comes without one."""
    return BuildRecord(
        precision=_UNKNOWN,
        route=_UNKNOWN,
        level=None,
        tensorrt=_UNKNOWN,
        flavour="tensorrt",
        device=_UNKNOWN,
        compute_capability=None,
        shapes=(),
        tf32=False,
        build_seconds=0.0,
        plan_bytes=len(plan),
        plan_sha256=hashlib.sha256(plan).hexdigest(),
        model=_UNKNOWN,
        model_sha256="",
        cache_sha256=None,
        key="",
        notes=("no record beside the engine: built by another program",),
    )
