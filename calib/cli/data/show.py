"""``calib data show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.wording import counted

if TYPE_CHECKING:
    from calib.data import Dataset
    from calib.data.overview import Figures, InputFigures, LabelFigures, Overview
    from calib.data.sheet import Sheet

__all__ = ["show_command"]

_READ = 512
_SHOWN = 20

_Recipe = Annotated[
    str,
    typer.Argument(
        help="Recipe: a YAML file or a shipped name; or a reader, module:object.", metavar="RECIPE"
    ),
]
_Samples = Annotated[int, typer.Option(help="Samples on the contact sheet, at most 400.")]
_Every = Annotated[bool, typer.Option("--all", help=f"Ranges over every sample, not {_READ} spread evenly.")]


def show_command(
    recipe: _Recipe,
    out: Annotated[Path | None, typer.Option(help="Contact sheet to draw, a PNG file.")] = None,
    samples: _Samples = 36,
    use: Annotated[str, typer.Option(help="calibration or validation: whose samples.")] = "calibration",
    every: _Every = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Show what the model will see: a contact sheet, value ranges, classes, what was left out."""
    from calib.data.overview import describe
    from calib.files import check_writable

    if out is not None:
        check_writable(_png(out))
    dataset = _opened(recipe, use)
    sheet = None if out is None else _drawn(dataset, samples, use, out)
    overview = describe(dataset, None if every else _READ)
    if as_json:
        from calib.cli.cache.output import to_json

        typer.echo(to_json(_payload(overview, use, out, sheet)))
    else:
        _print(overview, use)
        if sheet is not None:
            typer.echo(f"Contact sheet of {counted(sheet.pictures, 'sample[s]')}: {out}")
            for note in sheet.notes:
                typer.echo(f"  {note}")


def _png(out: Path) -> Path:
    from calib.errors import UsageError

    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out}: a contact sheet is a PNG file. Give a name that ends in .png.")
    return out


def _opened(recipe: str, use: str) -> Dataset:
    from calib.data import load_recipe, looks_like_object, open_calibration, open_validation
    from calib.data.reader_samples import open_object
    from calib.errors import UsageError

    if use not in ("calibration", "validation"):
        raise UsageError(f"--use must be calibration or validation, got {use!r}.")
    if looks_like_object(recipe):
        return open_object(recipe, _READ)
    loaded = load_recipe(recipe)
    return open_calibration(loaded) if use == "calibration" else open_validation(loaded)


def _drawn(dataset: Dataset, samples: int, use: str, out: Path) -> Sheet:
    from calib.data.sheet import draw_sheet
    from calib.files import write_bytes

    sheet = draw_sheet(dataset, samples, title=f"{dataset.name}, {use}: {counted(len(dataset), 'sample[s]')}")
    write_bytes(out, sheet.png)
    return sheet


def _payload(overview: Overview, use: str, out: Path | None, sheet: Sheet | None) -> dict[str, Any]:
    from dataclasses import asdict

    payload = asdict(overview)
    for found in payload["inputs"]:
        shapes = found["shapes"].items()
        found["shapes"] = [{"shape": list(shape), "samples": count} for shape, count in shapes]
    return {
        **payload,
        "use": use,
        "sheet": None if out is None else str(out),
        "sheet_notes": [] if sheet is None else sheet.notes,
    }


def _print(overview: Overview, use: str) -> None:
    from calib.cli.cache.output import print_table, printable

    scope = "" if overview.read == overview.samples else f"; values of {overview.read}, spread evenly"
    typer.echo(f"{printable(overview.name)}, {use}: {counted(overview.samples, 'sample[s]')}{scope}")
    typer.echo()
    rows = [row for found in overview.inputs for row in _rows(found)]
    print_table(("Input", "Type", "Shape", "Min", "Mean", "Max", "Std", "Not finite"), rows)
    typer.echo()
    for line in (*_labels(overview.labels, overview.class_names), *_steps(overview)):
        typer.echo(line)
    for note in overview.notes:
        typer.echo(f"note: {printable(note)}")
    typer.echo(f"fingerprint: {overview.fingerprint}")


def _rows(found: InputFigures) -> list[tuple[str, ...]]:
    from calib.cli.cache.output import printable

    shapes = " ".join("×".join(map(str, shape)) or "number" for shape in list(found.shapes)[:3])
    more = f" and {len(found.shapes) - 3} more" if len(found.shapes) > 3 else ""
    rows = [(printable(found.name), " ".join(found.dtypes), shapes + more, *_figures(found.values))]
    if len(found.channels) > 1:
        rows += [
            (f"  channel {number}", "", "", *_figures(channel))
            for number, channel in enumerate(found.channels)
        ]
    return rows


def _figures(found: Figures) -> tuple[str, ...]:
    values = (found.minimum, found.mean, found.maximum, found.std)
    return (*("" if value is None else f"{value:.5g}" for value in values), str(found.not_finite or ""))


def _labels(labels: LabelFigures, names: tuple[str, ...] | None) -> list[str]:
    from calib.cli.cache.output import printable

    lines = []
    if labels.counts:
        unit = {"classes": "samples", "boxes": "boxes", "pixels": "pixels"}[labels.kind]
        counts = sorted(labels.counts.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{printable(_named(number, names))}: {count}" for number, count in counts[:_SHOWN])
        more = f" and {len(counts) - _SHOWN} more (--json has all)" if len(counts) > _SHOWN else ""
        lines.append(f"{counted(len(counts), 'class[es]')}, {unit} each: {shown}{more}")
    elif labels.lowest is not None:
        what = "text lengths" if labels.kind == "texts" else f"labels ({labels.kind})"
        lines.append(f"{what} from {labels.lowest:g} to {labels.highest:g}")
    else:
        lines.append("no labels")
    if labels.missing and labels.kind != "none":
        lines.append(counted(labels.missing, "sample[s] [has|have] no label"))
    return lines


def _named(number: object, names: tuple[str, ...] | None) -> str:
    known = isinstance(number, int) and names is not None and 0 <= number < len(names)
    return f"{number} {names[number]}" if known and names[number] != str(number) else str(number)  # type: ignore[index,call-overload]


def _steps(overview: Overview) -> list[str]:
    if not overview.preprocess:
        return []
    return ["preprocess: " + ", ".join(f"{key} {value}" for key, value in overview.preprocess.items())]
