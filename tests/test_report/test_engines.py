"""Engines, parts of latencies, ratios and telemetry in reports."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from test_report import report_results as made
from test_report.engine_results import REASONS, TELEMETRY, engine, with_engines
from test_report.test_html import Page, rows_of

from calib.report.document import build_document
from calib.report.engines import engine_blocks, int8_sentence
from calib.report.merge import merge
from calib.report.provenance import telemetry_table
from calib.report.summary import headline, warnings
from calib.report.timing import parts_of, parts_table, ratios_table
from calib.validation.results import LatencyPart, LatencyRatio, Telemetry


def page(report, name="engines"):
    return report(name).html.read_text(encoding="utf-8")


def records(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_table_of_engines(report):
    heads, fp32, fp16, int8 = rows_of(page(report), "The TensorRT engines")
    found = dict(zip(heads, int8, strict=True))
    assert found == {
        "Precision": "INT8",
        "Route": "implicit INT8",
        "Built by": "TensorRT 8.6.0 NVIDIA H200",
        "Level": "3",
        "Layers": "15",
        "INT8 layers": "8 53.3%",
        "INT8 time": "61.0%",
        "Other layers": "7 FP32",
        "Reformats": "3",
        "Build": "49.6 s",
        "Engine size": "5.09 MiB",
    }
    assert dict(zip(heads, fp16, strict=True))["Build"] == "cached"
    assert dict(zip(heads, fp32, strict=True))["Level"] == "default"


def test_reasons_and_slowest_layers(report):
    source = page(report)
    reasons = rows_of(source, "compute in something else")[1:]
    assert reasons == [["INT8", reason, str(count)] for reason, count in REASONS.items()]
    slowest = rows_of(source, "The slowest layers")[1:]
    assert slowest[0] == ["FP32", "/l/l.4/b/b.0/Conv + /l/l.4/Add + /l/l.4/Relu", "FP32", "21.4%"]
    assert len(slowest) == 6


def test_fusion_and_costs_are_sentences(report):
    text = report("engines").markdown.read_text(encoding="utf-8")
    assert (
        "- **INT8, fusion**: 31 ONNX nodes became 15 engine layers: 11 vertical fusions; 3 reformats." in text
    )
    assert "- **INT8, beside FP16**: 30% of the layers' time (0.3 ms) goes to 3 reformats." in text
    assert "**FP16, beside FP16**" not in text


def test_the_section_follows_latency_and_is_linked(report):
    titles = [section.title for section in build_document(merge([with_engines(made.gpu())])).sections]
    assert titles.index("Engines") == titles.index("Latency") + 1
    assert {"href": "#engines"} in Page(page(report)).named("a")


@pytest.mark.parametrize("name", ["classifier", "gpu"])
def test_without_engines_there_is_no_section(report, name):
    assert 'id="engines"' not in page(report, name)
    assert engine_blocks(merge(made.SETS[name]())) == ()
    assert len(report(name).csv) == 2


def test_parts_of_a_latency(report):
    heads, *rows = rows_of(page(report), "Parts of the latency")
    assert heads == [
        *("Precision", "Host to device", "GPU compute", "Device to host", "With transfers", "End to end"),
        *("Enqueue", "CUDA graph"),
    ]
    int8 = dict(zip(heads, rows[2], strict=True))
    assert int8["GPU compute"].startswith("5.00 p90 5.4")
    assert int8["With transfers"].startswith("5.38 p90 5.92")
    assert (int8["Enqueue"].split()[0], int8["CUDA graph"]) == ("0.356", "no")


def test_the_latency_takes_the_name_that_its_parts_leave():
    base = replace(made.latency(2.0), parts=(LatencyPart("GPU compute", 1.0, 1.1, 1.2),))
    assert [(part.name, part.median_ms) for part in parts_of(base)] == [
        ("GPU compute", 1.0),
        ("with transfers", 2.0),
    ]
    assert parts_of(made.latency(2.0)) == ()


def test_ratios(report):
    rows = rows_of(page(report), "Latencies against each other")
    assert rows == [
        ["Precision", "Against", "Latency ratio", "95% interval", "Verdict"],
        ["FP16", "FP32", "0.400", "0.398–0.403", "faster"],
        ["INT8", "FP32", "0.500", "0.497–0.504", "faster"],
        ["INT8", "FP16", "1.25", "1.24–1.26", "slower"],
    ]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.9, 0.99, "faster"), (0.99, 1.01, "no difference shown"), (1.001, 1.1, "slower"), (None, None, "–")],
)
def test_verdicts_are_by_the_interval(low, high, verdict):
    ratio = LatencyRatio("INT8", "FP16", 1.0, low, high)
    table = ratios_table(merge([replace(made.gpu(), ratios=(ratio,))]))
    assert table is not None
    assert table.rows[0][-1].text == verdict


def test_ratios_name_the_rows_of_merged_results():
    table = ratios_table(merge([made.classifier(), with_engines(made.gpu())]))
    assert table is not None
    assert [cell.text for cell in table.rows[0][:2]] == ["FP16 · B", "FP32 · B"]


def test_telemetry(report):
    assert rows_of(page(report), "by NVML")[1:] == [
        ["Clock of the multiprocessors (MHz)", "1,980 1,755 to 1,980"],
        ["Clock of the memory (MHz)", "3,201"],
        ["Power (W)", "207 205 to 209"],
        ["Temperature (°C)", "39.0 38.0 to 40.0"],
        ["Clocks lowered by", "SwPowerCap"],
        ["Readings", "21"],
    ]


def test_telemetry_that_could_not_be_had():
    problem = Telemetry(problem="NVML is not installed")
    table = telemetry_table(merge([replace(made.gpu(), telemetry=problem)]))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [["Readings", "0"]]
    assert table.rows[0][1].sub == "NVML is not installed"
    calm = replace(TELEMETRY, throttle_reasons=())
    table = telemetry_table(merge([replace(made.gpu(), telemetry=calm)]))
    assert table is not None
    assert table.rows[4][1].text == "nothing"


def test_results_of_a_cpu_have_none_of_it():
    merged = merge([made.classifier()])
    assert (parts_table(merged), ratios_table(merged), telemetry_table(merged)) == (None, None, None)


def test_the_summary_tells_the_share_of_int8():
    found = dict(headline(merge([with_engines(made.gpu())])))
    told = "8 of 15 layers of the engine compute in INT8, 61.0% of the layers' time."
    assert found["INT8"].endswith(told)
    assert told not in found["FP16"]


def test_an_int8_engine_without_int8_is_warned_of():
    base = with_engines(made.gpu())
    bare = replace(engine("int8"), int8_layers=0, by_precision={"FP16": 15}, int8_time_share=None)
    runs = (*base.runs[:2], replace(base.runs[2], engine=bare))
    found = warnings(merge([replace(base, runs=runs)]))
    assert (
        "INT8 was built for INT8, and no layer of its engine computes in INT8: see Engines for why." in found
    )
    assert int8_sentence(bare) == "0 of 15 layers of the engine compute in INT8."


def test_an_engine_that_tells_names_alone_is_not_called_float():
    base = with_engines(made.gpu())
    silent = replace(engine("int8"), int8_layers=0, by_precision={"unknown": 15}, int8_time_share=None)
    merged = merge([replace(base, runs=(*base.runs[:2], replace(base.runs[2], engine=silent)))])
    assert not any("no layer of its engine" in warning for warning in warnings(merged))
    assert int8_sentence(silent) == ""
    table = engine_blocks(merged)[0]
    assert table is not None
    column = next(index for index, head in enumerate(table.columns) if head.title == "INT8 layers")
    assert table.rows[2][column].missing


def test_csv_of_engines_and_parts(report):
    _, _, parts, engines = report("engines").csv
    assert (parts.name, engines.name) == ("latency_parts.csv", "engines.csv")
    rows = records(parts)
    assert len(rows) == 3 * 6
    assert [row["part"] for row in rows[:3]] == ["host to device", "GPU compute", "device to host"]
    assert float(rows[1]["median_ms"]) == 10.0
    figures = {(row["run"], row["kind"], row["name"]): row["value"] for row in records(engines)}
    assert figures["INT8", "layers", "INT8"] == "8"
    assert figures["INT8", "engine", "int8_time_share"] == "0.61"
    assert figures["FP16", "engine", "build_seconds"] == ""
    assert [int(figures["INT8", "not INT8", reason]) for reason in REASONS] == list(REASONS.values())
    assert float(figures["INT8", "share of time, FP32", "/stem"]) == 0.05


def test_hostile_strings_stay_text(report):
    source = page(report, "hostile engines")
    assert "<script" not in source
    _, _, _, engines = report("hostile engines").csv
    assert any(row["name"].startswith("'=cmd()") for row in records(engines))
