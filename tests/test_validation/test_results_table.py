from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from calib.cli.tables import print_results, results_table
from calib.validation import OutputError, Results


def drawn(results: Results, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(results_table(results))
    return capture.get()


def words(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(start)).split()


@pytest.mark.parametrize("width", [80, 160])
def test_every_figure_is_whole_on_a_usual_terminal(results: Results, width: int) -> None:
    text = drawn(results, width)
    # 4 samples in 2 ms and in 1.25 ms.
    assert words(text, "FP32") == ["FP32", "90.0%", "–", "–", "–", "2.00", "ms", "2,000", "2.00", "KiB"]
    int8 = words(text, "INT8")
    assert int8 == ["INT8", "90.0%", "+10.0", "80.0%", "31.6", "dB", "1.25", "ms", "3,200", "2.00", "KiB"]
    assert "60.0–98.0%" in text
    assert "…" not in text


def test_a_simulation_says_so(results: Results) -> None:
    text = " ".join(drawn(results).split())
    assert "CPU simulation: latency and throughput say nothing of TensorRT's speed." in text
    assert "Latency of batches of 4." in text


def test_a_measurement_does_not(results: Results) -> None:
    runs = tuple(replace(r, latency=replace(r.latency, simulated=False)) for r in results.runs if r.latency)
    assert "simulation" not in drawn(replace(results, runs=runs))


def test_columns_without_a_figure_are_left_out(results: Results) -> None:
    runs = tuple(replace(run, metrics=(), latency=None) for run in results.runs)
    text = drawn(replace(results, runs=runs))
    assert words(text, "INT8") == ["INT8", "31.6", "dB", "2.00", "KiB"]
    assert "Top-1" not in text
    assert "Latency" not in text


A, B, EXACT = (
    OutputError("a", 4, 1, 1, 1.0, 40.0, 1),
    OutputError("b", 4, 1, 1, 1.0, 12.0, 1),
    OutputError("c", 4, 0, 0, 1.0, None, 1, verdict="equal"),
)
BROKEN = OutputError("y", 4, None, None, None, None, 1.0, 1, verdict="candidate not finite")


@pytest.mark.parametrize(
    ("errors", "shown", "named"),
    [
        ([EXACT], "no error", ""),
        ([BROKEN], "not finite", ""),
        ([A, BROKEN], "not finite", ""),
        ([OutputError("y", 4, 1.0, 1.0, None, None, 0.0)], "none", ""),
        ([A, B], "12.0 dB", "b"),
        ([A, EXACT], "40.0 dB", "a"),
    ],
)
def test_the_worst_output_stands_for_all(
    results: Results, errors: list[OutputError], shown: str, named: str
) -> None:
    runs = (
        replace(results.runs[0], metrics=(), latency=None),
        replace(results.runs[1], outputs=tuple(errors), metrics=(), latency=None),
    )
    lines = drawn(replace(results, runs=runs)).splitlines()
    row = next(index for index, line in enumerate(lines) if line.startswith("INT8"))
    assert " ".join(lines[row].split()) == f"INT8 {shown} 2.00 KiB"
    assert "".join(lines[row + 1 :]).strip() == named


def two_calibrations(results: Results) -> Results:
    fp32, int8 = results.runs
    kept = replace(int8.outputs[0], sqnr_db=38.1)
    return replace(
        results,
        runs=(
            fp32,
            replace(int8, label="INT8 entropy", calibration="entropy"),
            replace(int8, label="INT8 minmax", calibration="minmax", outputs=(kept,)),
        ),
    )


def test_calibrations_side_by_side_fit_a_usual_terminal(results: Results) -> None:
    text = drawn(two_calibrations(results))
    assert words(text, "INT8 entropy")[:4] == ["INT8", "entropy", "90.0%", "+10.0"]
    assert words(text, "INT8 minmax")[4:7] == ["80.0%", "38.1", "dB"]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_better_calibration_is_printed(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    print_results(results)
    assert "better" not in capsys.readouterr().out
    print_results(two_calibrations(results))
    printed = " ".join(capsys.readouterr().out.split())
    assert "entropy or min-max: min-max keeps output 'y' better: 38.1 dB against 31.6 dB." in printed


def test_names_are_text_not_markup(results: Results) -> None:
    named = replace(B, output="[/b]\x1b[31m")
    runs = (results.runs[0], replace(results.runs[1], outputs=(A, named)))
    model = replace(results.model, name="[/i]\x1b[31m")
    text = drawn(replace(results, model=model, runs=runs))
    assert "[/b]\\x1b[31m" in text
    assert "[/i]\\x1b[31m on noise" in text
