"""``calib plan``: how many samples a gate needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.validation import Results, SamplePlan

__all__ = ["plan_command"]


def plan_command(
    margin: Annotated[
        str,
        typer.Option(
            help="Largest drop that shall be allowed, in percentage points: 0.5; or in the figure's own unit."
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(
            help="What shall be judged: top1, top5, or with a pilot any figure that it has: mAP, mIoU, RMSE. "
            "[default: the main one of the pilot's task, else top1]",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Accuracy of the baseline in per cent: 76.", show_default=False)
    ] = None,
    disagreement: Annotated[
        str | None,
        typer.Option(
            help="Per cent of the samples on which just one precision is right: 3.0.", show_default=False
        ),
    ] = None,
    pilot: Annotated[
        Path | None, typer.Option(help="results.json of a small run, to take that from.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="The pilot's run; the one that disagrees most by default.", show_default=False),
    ] = None,
    expected_drop: Annotated[str, typer.Option(help="True drop that is expected, as the margin.")] = "0",
    power: Annotated[float, typer.Option(help="Chance that a good model passes.")] = 0.8,
    alpha: Annotated[float, typer.Option(help="Chance that a bad one does.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say how many samples show that a drop stays within a margin."""
    import dataclasses
    import json

    from calib.validation import plan_samples, read_results
    from calib.validation.thresholds import parse_per_cent

    found = None if pilot is None else read_results(pilot)
    unit = "share" if found is None else _unit(found, metric or found.judged_by)
    plan = plan_samples(
        margin=_amount(margin, "--margin", unit),
        metric=metric,
        baseline=None if baseline is None else parse_per_cent(baseline, "--baseline"),
        disagreement=None if disagreement is None else parse_per_cent(disagreement, "--disagreement"),
        pilot=found,
        run=run,
        expected_drop=_amount(expected_drop, "--expected-drop", unit),
        power=power,
        alpha=alpha,
    )
    typer.echo(json.dumps(dataclasses.asdict(plan), indent=1) if as_json else _text(plan))


def _unit(pilot: Results, metric: str) -> str:
    return next((one.unit for run in pilot.runs for one in run.metrics if one.name == metric), "share")


def _amount(given: str, option: str, unit: str) -> float:
    """Percentage points as a share, or a number in the figure's unit."""
    from calib.validation.thresholds import parse_per_cent, parse_threshold

    return (
        parse_per_cent(given, option) if unit == "share" else parse_threshold(given, option, "number").value
    )


def _text(plan: SamplePlan) -> str:
    from calib.validation.thresholds import describe_points, plain

    share = plan.unit == "share"
    margin = describe_points(plan.margin) if share else f"{plain(plan.margin)} {plan.unit}".rstrip()
    moves = "drop" if plan.higher_is_better else "rise"
    true = plain((100 if share else 1) * plan.expected_drop)
    lines = [
        f"{plan.samples:,} samples show with {plain(100 * plan.power)}% chance that {plan.metric} {moves}s "
        f"by less than {margin}, where the true {moves} is {true}."
    ]
    if plan.cautious_samples is not None and plan.cautious_samples > plan.samples:
        what = "disagreement" if plan.spread is None else "spread"
        lines.append(f"{plan.cautious_samples:,} where the {what} is as large as the pilot allows.")
    lines += [
        _basis(plan),
        f"A model that {moves}s by the margin or more passes with at most {plain(100 * plan.alpha)}% chance.",
        *(f"note: {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def _basis(plan: SamplePlan) -> str:
    from calib.validation.thresholds import plain

    if plan.spread is None:
        rate = 0.0 if plan.disagreement is None else plan.disagreement
        return f"Disagreement: {plain(100 * rate)}% of the samples ({plan.source})."
    share = plan.unit == "share"
    error = f"{plain((100 if share else 1) * plan.spread, 3)} {'points' if share else plan.unit}".rstrip()
    return f"Standard error of the change: {error} ({plan.source})."
