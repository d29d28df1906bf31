"""``calib cache convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.wording import counted

if TYPE_CHECKING:
    from calib.calibrators.cache_convert import ReadCache

__all__ = ["convert_command"]

_QDQ = "qdq"


def convert_command(
    source: Annotated[Path, typer.Argument(help="A cache, a table or a Q/DQ model.", metavar="IN")],
    out: Annotated[Path, typer.Argument(help="The file to write.", metavar="OUT")],
    from_form: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="tensorrt, onnxruntime-json, onnxruntime-cache, onnxruntime-flatbuffers or qdq; "
            "by default what the file's content says.",
        ),
    ] = None,
    to_form: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="tensorrt, onnxruntime-json, onnxruntime-cache or onnxruntime-flatbuffers; by default "
            "by OUT's ending: .json, .flatbuffers, else tensorrt.",
        ),
    ] = None,
    tensorrt: Annotated[
        str | None, typer.Option(help="TensorRT version for the header; by default IN's, else 8.6.0.")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="Algorithm for the header; by default IN's, else EntropyCalibration2."),
    ] = None,
    drop_unusable: Annotated[
        bool, typer.Option("--drop-unusable", help="Leave out entries whose scale INT8 cannot use.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Convert to and from ONNX Runtime's table, from a Q/DQ model, or to another TensorRT's header.

    A new header says that the ranges hold for that TensorRT as well. That is for you to know.
    """
    from calib.calibrators import cache_convert, cache_edit
    from calib.cli.cache.output import check_output, emit, names_line
    from calib.errors import UsageError

    check_output(out, [source])
    target = to_form or cache_convert.form_of_output(out)
    if target != "tensorrt" and tensorrt is not None:
        raise UsageError(f"--tensorrt is for a TensorRT cache; {target} names no version. Leave it out.")
    form = from_form or cache_convert.detect_form(source)
    read = _read(source, form)
    cache = read.cache
    dropped: tuple[str, ...] = ()
    if drop_unusable:
        cache, dropped = cache_edit.drop_unusable(cache, str(source))
    cache_edit.refuse_non_finite(cache, str(source))
    cache = cache_edit.with_header(cache, tensorrt, algorithm)
    notes = (*read.notes, *cache_convert.write_converted(cache, out, target, source, form))
    payload = {
        "out": str(out),
        "from": form,
        "to": target,
        "header": cache.header if target == "tensorrt" else None,
        "tensors": len(cache),
        "dropped": dropped,
        "notes": notes,
    }
    lines = [
        f"{out}: {target}, "
        f"{cache.header + ', ' if target == 'tensorrt' else ''}{counted(len(cache), 'tensor[s]')}"
    ]
    lines += (
        [names_line(f"{counted(len(dropped), 'unusable entr[y|ies]')} left out", dropped)] if dropped else []
    )
    emit(payload, lines, as_json)


def _read(source: Path, form: str) -> ReadCache:
    from calib.calibrators.cache_convert import ReadCache, read_cache_as
    from calib.errors import UsageError

    if form != _QDQ:
        if source.suffix == ".onnx":
            raise UsageError(f"{source} is a model: --from {_QDQ} takes the scales of its Q/DQ nodes.")
        return read_cache_as(source, form)

    from calib.calibrators import CalibrationCache
    from calib.graph import load_model
    from calib.graph.qdq_scales import read_qdq_scales

    found = read_qdq_scales(load_model(source))
    notes = (f"{found.weights} quantized weights and biases were passed over: a cache holds activations",)
    return ReadCache(CalibrationCache(found.scales), notes if found.weights else ())
