"""``calib plan``: how many samples a gate needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.validation import SamplePlan

__all__ = ["plan_command"]


def plan_command(
    margin: Annotated[
        str, typer.Option(help="Largest drop that shall be allowed, in percentage points: 0.5.")
    ],
    metric: Annotated[str, typer.Option(help="What shall be judged: top1 or top5.")] = "top1",
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
    expected_drop: Annotated[str, typer.Option(help="True drop that is expected, in points.")] = "0",
    power: Annotated[float, typer.Option(help="Chance that a good model passes.")] = 0.8,
    alpha: Annotated[float, typer.Option(help="Chance that a bad one does.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say how many samples show that a drop stays within a margin."""
    import dataclasses
    import json

    from calib.validation import plan_samples, read_results
    from calib.validation.thresholds import parse_per_cent

    plan = plan_samples(
        margin=parse_per_cent(margin, "--margin"),
        metric=metric,
        baseline=None if baseline is None else parse_per_cent(baseline, "--baseline"),
        disagreement=None if disagreement is None else parse_per_cent(disagreement, "--disagreement"),
        pilot=None if pilot is None else read_results(pilot),
        run=run,
        expected_drop=parse_per_cent(expected_drop, "--expected-drop"),
        power=power,
        alpha=alpha,
    )
    typer.echo(json.dumps(dataclasses.asdict(plan), indent=1) if as_json else _text(plan))


def _text(plan: SamplePlan) -> str:
    from calib.validation.thresholds import describe_points, plain

    lines = [
        f"{plan.samples:,} samples show with {plain(100 * plan.power)}% chance that {plan.metric} drops by "
        f"less than {describe_points(plan.margin)}, where the true drop is {plain(100 * plan.expected_drop)}."
    ]
    if plan.cautious_samples is not None and plan.cautious_samples > plan.samples:
        lines.append(f"{plan.cautious_samples:,} where the disagreement is as large as the pilot allows.")
    lines += [
        f"Disagreement: {plain(100 * plan.disagreement)}% of the samples ({plan.source}).",
        f"A model that drops by the margin or more passes with at most {plain(100 * plan.alpha)}% chance.",
        *(f"note: {note}" for note in plan.notes),
    ]
    return "\n".join(lines)
