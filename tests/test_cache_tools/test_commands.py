"""``calib cache`` as a user meets it: what it prints, what it writes, its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from goldens import NETS, REAL
from networks import conv_relu_gemm, samples, save
from onnx import numpy_helper

from calib.calibrators import CalibrationCache, read_sidecar, sidecar_path
from calib.data import from_arrays
from calib.graph import calibrate, quantize

Run = Callable[..., Any]
CACHES = sorted((REAL / "caches").glob("*.cache"))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A model ``m.onnx`` and its cache ``m.cache`` with a sidecar."""
    save(conv_relu_gemm(), tmp_path / "m.onnx")
    data = from_arrays("noise", {"x": samples(8, 3, 8, 8)})
    calibrate(tmp_path / "m.onnx", data, method="minmax", out=tmp_path / "m.cache")
    return tmp_path / "m.cache"


def write(path: Path, *rows: str, header: str = "TRT-8600-EntropyCalibration2") -> Path:
    path.write_text("\n".join([header, *rows, ""]))
    return path


@pytest.mark.parametrize("path", CACHES, ids=lambda path: path.stem)
def test_every_real_cache_is_shown_linted_and_rewritten(cache: Run, path: Path, tmp_path: Path) -> None:
    shown = cache("show", path, "--json").json
    rows = [row.rpartition(": ") for row in path.read_text().splitlines()[1:]]
    assert [(row["tensor"], row["bits"]) for row in shown["entries"]] == [(r[0], r[2]) for r in rows]
    for row in shown["entries"]:
        assert np.float32(row["scale"]).view(np.uint32) == int(row["bits"], 16)
        assert np.float32(row["amax"]) / np.float32(127) == np.float32(row["scale"])
    table = cache("show", path)
    assert table.status == 0
    assert f"{len(rows)} tensors" in table.out
    assert all(row[0] in table.out for row in rows)
    assert cache("lint", path, "--strict").status == 0
    assert cache("convert", path, tmp_path / "copy.cache").status == 0
    assert (tmp_path / "copy.cache").read_bytes() == path.read_bytes()


def test_show_names_the_sidecar_and_later_changes(cache: Run, made: Path) -> None:
    shown = cache("show", made).out
    assert "Made from m.onnx on 8 samples of noise by minmax" in shown
    assert "was changed" not in shown
    assert cache("show", made, "--json").json["changed_since_calibration"] is False
    made.write_bytes(made.read_bytes().replace(b"\n", b"\r\n"))
    assert "This file was changed after its calibration" in cache("show", made).out
    assert cache("show", made, "--json").json["changed_since_calibration"] is True
    linted = cache("lint", made)
    assert (linted.status, "changed-since-calibration" in linted.out) == (0, True)
    assert cache("lint", made, "--strict").status == 1


def test_show_marks_unusable_scales(cache: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "m.cache", "x: 3c010204", "y: 0", "z: 38d1b7", "i: 7f800000")
    shown = cache("show", path, "--sort", "scale")
    assert "3 scales cannot be used." in shown.out
    assert [line.split()[0] for line in shown.out.splitlines()[4:]] == ["i", "z", "y", "x"]
    assert "100.00%" in shown.out
    assert cache("show", path, "--json").json["entries"][3]["scale"] is None


def test_names_with_control_characters_do_not_reach_the_terminal(cache: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.cache"
    path.write_text("TRT-8600-EntropyCalibration2\nevil\x1b[2J: 3c010204\n[bold]x: 3c010204\n")
    for arguments in (("show", path), ("lint", path, "--model", save(conv_relu_gemm(), tmp_path / "m.onnx"))):
        out = cache(*arguments).out
        assert "\x1b" not in out
        assert "evil\\x1b[2J" in out
        assert "[bold]x" in out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("TRT-8600-EntropyCalibration2\nx: 3c010204\ny: 3c01\ny2", "line 4"),
        ("TRT-8600-EntropyCalibration2\n", "no entries"),
        (None, "no such file"),
    ],
)
@pytest.mark.parametrize("command", ["show", "lint"])
def test_unreadable_files_are_exit_status_2(
    cache: Run, tmp_path: Path, command: str, content: str | None, said: str
) -> None:
    path = tmp_path / "m.cache"
    if content is not None:
        path.write_text(content)
    ran = cache(command, path)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert list(tmp_path.iterdir()) == ([] if content is None else [path])


def test_reading_commands_write_nothing(cache: Run, made: Path) -> None:
    folder = made.parent
    made.chmod(0o444)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    for _ in range(2):
        cache("show", made)
        cache("lint", made, "--model", folder / "m.onnx", "--target", "10.3.0")
        cache("diff", made, made, "--model", folder / "m.onnx")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before


def test_lint_of_an_own_calibration_is_clean(cache: Run, made: Path) -> None:
    ran = cache("lint", made, "--model", made.with_name("m.onnx"), "--target", "8.6.0", "--strict", "--json")
    assert (ran.status, ran.json["passed"]) == (0, True)
    assert [row["code"] for row in ran.json["findings"]] == ["algorithm-reader"]
    assert len(ran.json["names"]["matched"]) == 9


def test_lint_for_another_tensorrt_fails_and_leaves_the_file(cache: Run, made: Path) -> None:
    before = made.read_bytes()
    ran = cache("lint", made, "--target", "10.3.0")
    assert ran.status == 1
    assert "made for TensorRT 8.6.0, the target is TensorRT 10.3.0" in ran.out
    assert "calib cache convert FILE OUT --tensorrt 10.3.0" in ran.out
    assert ran.out.endswith("1 error, no warnings, 1 note.\n")
    assert made.read_bytes() == before


def test_lint_says_which_part_of_the_model_changed(cache: Run, made: Path) -> None:
    proto = onnx.load(made.with_name("m.onnx"))
    changed = numpy_helper.to_array(proto.graph.initializer[0]) + np.float32(0.5)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(changed, "w1"))
    onnx.save(proto, made.with_name("m.onnx"))
    ran = cache("lint", made, "--model", made.with_name("m.onnx"))
    assert ran.status == 1
    assert "weights-changed: the weights of" in ran.out
    assert "graph-changed" not in ran.out


def test_lint_counts_names_three_ways(cache: Run, tmp_path: Path) -> None:
    model = save(conv_relu_gemm(), tmp_path / "m.onnx")
    names = ["x", "c1", "r1", "p1", "c2", "r2", "g", "f_old:0", "(Unnamed Layer* 3) [Constant]_output"]
    path = write(tmp_path / "m.cache", *(f"{name}: 3c010204" for name in names))
    ran = cache("lint", path, "--model", model)
    assert ran.status == 0
    assert (
        "Names: 7 matched, 1 only in the cache, 2 only in the model (float activations), "
        "1 of helper layers, constants and integers." in ran.out
    )
    strict = cache("lint", path, "--model", model, "--strict", "--json")
    assert strict.status == 1
    assert strict.json["names"]["only_cache"] == ["f_old:0"]
    assert strict.json["names"]["only_model"] == ["f", "y"]


def test_lint_names_a_convolutions_missing_input(cache: Run, made: Path) -> None:
    made.write_text("".join(line for line in made.read_text().splitlines(True) if not line.startswith("p1:")))
    ran = cache("lint", made, "--model", made.with_name("m.onnx"), "--json")
    missing = [row["tensor"] for row in ran.json["findings"] if row["code"] == "name-missing"]
    assert missing == ["p1"]
    quantized = quantize(made.with_name("m.onnx"), made)
    assert [left.node for left in quantized.left_float] == ["conv2"]


def test_lint_shortens_long_lists(cache: Run) -> None:
    ran = cache("lint", CACHES[-1], "--model", NETS / "unet.onnx")
    assert ran.status == 1
    assert "names-of-another-model" in ran.out
    assert "… 5 more of name-missing (--json has all)" in ran.out


def test_diff_prints_ratios_and_gates(cache: Run, tmp_path: Path) -> None:
    a = write(tmp_path / "a.cache", "x: 3c010204", "y: 3c010204", "z: 3c010204", "a: 3c010204")
    b = write(tmp_path / "b.cache", "x: 3c010204", "y: 3c810204", "z: 3b010204", "b: 3c010204")
    ran = cache("diff", a, b)
    assert ran.status == 0
    assert [line.split()[::3] for line in ran.out.splitlines()[4:6]] == [["z", "0.25"], ["y", "2"]]
    assert "3 tensors in both: 1 equal bit for bit, 2 not." in ran.out
    assert "Furthest apart by the factor 4, median 2." in ran.out
    assert "1 only in A: a" in ran.out
    assert "1 only in B: b" in ran.out
    assert cache("diff", a, b, "--max-ratio", "4").status == 0
    failed = cache("diff", a, b, "--max-ratio", "3.9")
    assert failed.status == 1
    assert "FAILED: z differs by the factor 4, at most 3.9 is allowed." in failed.out
    told = cache("diff", a, b, "--max-ratio", "3.9", "--json")
    assert (told.status, told.json["passed"], told.json["largest_factor"]) == (1, False, 4.0)
    assert [row["tensor"] for row in told.json["ratios"]] == ["z", "y", "x"]
    refused = cache("diff", a, b, "--max-ratio", "0.9")
    assert (refused.status, "--max-ratio is a factor of at least 1" in refused.err) == (2, True)


def test_diff_gate_fails_without_common_tensors(cache: Run, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", "x: 3c010204"), write(tmp_path / "b", "y: 3c010204")
    assert cache("diff", a, b).status == 0
    ran = cache("diff", a, b, "--max-ratio", "2")
    assert (ran.status, "no tensor in common" in ran.out) == (1, True)


def test_diff_can_keep_to_a_models_activations(cache: Run) -> None:
    first, second = NETS / "plain.minmax.cache", NETS / "plain.entropy2.cache"
    ran = cache("diff", first, second, "--model", NETS / "plain.onnx", "--json")
    assert len(ran.json["ratios"]) == 14
    assert not any(row["tensor"].startswith("(Unnamed") for row in ran.json["ratios"])


def test_merge_writes_the_largest_scales(cache: Run, tmp_path: Path) -> None:
    a = write(tmp_path / "a.cache", "x: 3c010204", "y: 3c810204")
    b = write(tmp_path / "b.cache", "y: 3c010204", "x: 3c810204", "z: 3c010204")
    ran = cache("merge", a, b, "--out", tmp_path / "c.cache")
    assert ran.status == 0
    assert "2 tensors differed (max taken): x, y" in ran.out
    text = (tmp_path / "c.cache").read_text()
    assert text == "TRT-8600-EntropyCalibration2\nx: 3c810204\ny: 3c810204\nz: 3c010204\n"
    ours = cache("merge", a, b, "--out", tmp_path / "c.cache", "--policy", "ours", "--json")
    assert ours.json["conflicts"] == ["x", "y"]
    assert CalibrationCache.read(tmp_path / "c.cache").bits("x") == "3c010204"


def test_merge_refuses_other_headers_and_its_own_input(cache: Run, tmp_path: Path) -> None:
    a = write(tmp_path / "a.cache", "x: 3c010204")
    b = write(tmp_path / "b.cache", "x: 3c010204", header="TRT-100300-EntropyCalibration2")
    ran = cache("merge", a, b, "--out", tmp_path / "c.cache")
    assert ran.status == 2
    assert "a.cache" in ran.err
    assert "b.cache" in ran.err
    assert not (tmp_path / "c.cache").exists()
    assert cache("merge", a, b, "--out", tmp_path / "c.cache", "--tensorrt", "10.3.0").status == 0
    assert CalibrationCache.read(tmp_path / "c.cache").version == "10.3.0"
    refused = cache("merge", a, a, "--out", a)
    assert (refused.status, "is the input itself" in refused.err) == (2, True)


def test_merge_tells_that_the_models_differ(cache: Run, made: Path, tmp_path: Path) -> None:
    proto = onnx.load(made.with_name("m.onnx"))
    changed = numpy_helper.to_array(proto.graph.initializer[0]) * np.float32(2)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(changed, "w1"))
    other = save(proto, tmp_path / "n.onnx")
    data = from_arrays("noise", {"x": samples(8, 3, 8, 8)})
    calibrate(other, data, method="minmax", out=tmp_path / "n.cache")
    ran = cache("merge", made, tmp_path / "n.cache", "--out", tmp_path / "all.cache", "--json")
    assert len(ran.json["notes"]) == 1
    assert "were made from models whose weights differ" in ran.json["notes"][0]


def test_unusable_scales_are_written_on_no_account(cache: Run, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.cache", "x: 3c010204", "i: 7f800000", "n: 7fc00000")
    out = tmp_path / "out.cache"
    for arguments in (
        ("convert", bad, out, "--tensorrt", "10.3.0"),
        ("convert", bad, tmp_path / "t.json"),
        ("rename", bad, "--out", out, "--map", "x=y"),
        ("merge", bad, bad, "--out", out),
    ):
        ran = cache(*arguments)
        assert ran.status == 2, arguments
        assert "'i' (infinite), 'n' (not a number)" in ran.err
        assert "--drop-unusable" in ran.err
    assert list(tmp_path.iterdir()) == [bad]
    dropped = cache("convert", bad, out, "--drop-unusable", "--json")
    assert dropped.json["dropped"] == ["i", "n"]
    assert out.read_text() == "TRT-8600-EntropyCalibration2\nx: 3c010204\n"
    assert cache("merge", bad, out, "--out", tmp_path / "m.cache", "--drop-unusable").status == 0
    assert cache("rename", bad, "--out", out, "--map", "x=y", "--drop-unusable").status == 0
    assert out.read_text() == "TRT-8600-EntropyCalibration2\ny: 3c010204\n"


def test_rename_carries_the_provenance(cache: Run, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.cache"
    ran = cache("rename", made, "--out", out, "--map", "c1=stem", "--map", "y=logits")
    assert ran.status == 0
    assert "c1 → stem" in ran.out
    assert "2 of 9 tensors renamed." in ran.out
    renamed = made.read_text().replace("c1:", "stem:").replace("y:", "logits:")
    assert out.read_text() == renamed
    old, new = read_sidecar(made), read_sidecar(out)
    assert old is not None
    assert new is not None
    assert new.weights_sha256 == old.weights_sha256
    assert cache("show", out, "--json").json["changed_since_calibration"] is False


def test_rename_by_file_and_regex(cache: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "m.cache", "net/a:0: 3c010204", "net/b:0: 3c010204", "12: 3c010204")
    out = tmp_path / "out.cache"
    assert cache("rename", path, "--out", out, "--regex", "^net/(.*):0$", r"\1").status == 0
    assert list(CalibrationCache.read(out)) == ["a", "b", "12"]
    (tmp_path / "names.yaml").write_text("net/a:0: a\n12: 13\nunknown: u\n")
    assert cache("rename", path, "--out", out, "--map-file", tmp_path / "names.yaml").status == 0
    assert list(CalibrationCache.read(out)) == ["a", "net/b:0", "13"]
    (tmp_path / "names.json").write_text(json.dumps({"net/b:0": "b=b"}))
    assert cache("rename", path, "--out", out, "--map-file", tmp_path / "names.json").status == 0
    assert cache("rename", out, "--out", tmp_path / "last.cache", "--map", "b=b=c").status == 0
    assert list(CalibrationCache.read(tmp_path / "last.cache")) == ["net/a:0", "c", "12"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give one of --map OLD=NEW"),
        (["--map", "x=z", "--regex", "x", "y"], "Give one of --map OLD=NEW"),
        (["--map", "xz"], "--map must read OLD=NEW, got 'xz'"),
        (["--map", "x=y"], "tensors 'x' and 'y' would both be named 'y'"),
        (["--regex", "q", "r"], "Nothing was renamed"),
        (["--regex", "(", "r"], "is not a valid regular expression"),
        (["--map-file", "list.yaml"], "expected a mapping of old names to new names"),
        (["--map-file", "deep.json"], "expected a mapping of old names to new names, got [1] for 'x'"),
        (["--map-file", "twice.yaml"], "'x' is there twice"),
        (["--map-file", "broken.json"], "is not valid JSON"),
        (["--map-file", "broken.yaml"], "is not valid YAML"),
        (["--map-file", "none.yaml"], "Cannot read map of names none.yaml: no such file"),
    ],
)
def test_rename_refuses(
    cache: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("m.cache"), "x: 3c010204", "y: 3c010204")
    Path("list.yaml").write_text("- x\n")
    Path("deep.json").write_text('{"x": [1]}')
    Path("twice.yaml").write_text("x: a\nx: b\n")
    Path("broken.json").write_text("{")
    Path("broken.yaml").write_text("x: [")
    ran = cache("rename", "m.cache", "--out", "out.cache", *arguments)
    assert ran.status == 2
    assert said in ran.err
    assert not Path("out.cache").exists()


def test_convert_writes_a_new_header_on_request_only(cache: Run, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "ten.cache"
    ran = cache("convert", made, out, "--tensorrt", "10.3.0", "--algorithm", "entropy", "--json")
    assert ran.json["header"] == "TRT-100300-EntropyCalibration2"
    assert out.read_text().splitlines()[1:] == made.read_text().splitlines()[1:]
    assert cache("lint", out, "--target", "10.3.0", "--method", "entropy", "--strict").status == 0
    refused = cache("convert", made, tmp_path / "eleven.cache", "--tensorrt", "11.0")
    assert (refused.status, "calib quantize" in refused.err) == (2, True)


@pytest.mark.parametrize("name", ["t.json", "t.flatbuffers", "t.cache"])
def test_convert_there_and_back_keeps_every_bit(cache: Run, made: Path, tmp_path: Path, name: str) -> None:
    to = ["--to", "onnxruntime-cache"] if name == "t.cache" else []
    there = cache("convert", made, tmp_path / name, *to)
    assert there.status == 0, there.err
    back = cache("convert", tmp_path / name, tmp_path / "back.cache", "--algorithm", "minmax")
    assert back.status == 0, back.err
    rows = sorted(made.read_text().splitlines())
    assert sorted((tmp_path / "back.cache").read_text().splitlines()) == rows


def test_onnx_runtimes_text_is_never_taken_for_scales(cache: Run, tmp_path: Path) -> None:
    path = tmp_path / "calibration.cache"
    path.write_text("data 2.64\n(Unnamed Layer* 3) [Shuffle]_output 1.5\n")
    for command in ("show", "lint"):
        ran = cache(command, path)
        assert ran.status == 2
        assert "is ONNX Runtime's table" in ran.err
        assert f"calib cache convert {path} OUT.cache" in ran.err
    assert cache("convert", path, tmp_path / "m.cache").status == 0
    assert CalibrationCache.read(tmp_path / "m.cache")["data"] == pytest.approx(0.020787, abs=5e-7)


def test_one_scale_has_the_same_bits_in_cache_json_and_model(cache: Run, tmp_path: Path) -> None:
    model = save(conv_relu_gemm(), tmp_path / "m.onnx")
    scale = np.float32(0.20115377) / np.float32(127)
    names = ["x", "c1", "r1", "p1", "c2", "r2", "g", "f", "y"]
    CalibrationCache(dict.fromkeys(names, float(scale))).write(tmp_path / "m.cache")
    cache("convert", tmp_path / "m.cache", tmp_path / "m.json")
    ends = json.loads((tmp_path / "m.json").read_text())["data"]["x"]
    assert np.float32(ends["highest"]["data"]) == np.float32(0.20115377)
    assert np.float32(cache("show", tmp_path / "m.cache", "--json").json["entries"][0]["scale"]) == scale
    quantize(model, tmp_path / "m.cache", out=tmp_path / "m.int8.onnx")
    assert cache("convert", tmp_path / "m.int8.onnx", tmp_path / "again.cache").status == 0
    again = CalibrationCache.read(tmp_path / "again.cache")
    assert {again.bits(name) for name in again} == {f"{scale.view(np.uint32):x}"}


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        (lambda text: text.replace("\n", "\r\n"), "windows"),
        (lambda text: text.replace("\n", " \t\n"), "trailing blanks"),
        (lambda text: text + "\n\n", "empty lines"),
        (lambda text: text[:-1], "no final newline"),
        (lambda text: text, "as it was"),
    ],
)
def test_what_editors_leave_is_rewritten_canonically(
    cache: Run, tmp_path: Path, edit: Callable[[str], str], name: str
) -> None:
    good = "TRT-8600-EntropyCalibration2\na: 3c010204\nb: 3d010204\n"
    (tmp_path / "in.cache").write_bytes(edit(good).encode())
    assert cache("convert", tmp_path / "in.cache", tmp_path / "out.cache").status == 0, name
    assert (tmp_path / "out.cache").read_bytes() == good.encode()


def test_convert_refuses_what_cannot_be_meant(cache: Run, made: Path, tmp_path: Path) -> None:
    model = made.with_name("m.onnx")
    for arguments, said in (
        ((made, made), "is the input itself"),
        ((made, sidecar_path(made)), "is the provenance of"),
        ((made, tmp_path / "t.json", "--tensorrt", "8.6.0"), "--tensorrt is for a TensorRT cache"),
        ((made, tmp_path / "t", "--to", "csv"), "Form must be one of"),
        ((made, tmp_path / "t", "--from", "csv"), "Form must be one of"),
        ((model, tmp_path / "t"), "has no QuantizeLinear on an activation"),
        ((model, tmp_path / "t", "--from", "tensorrt"), "--from qdq"),
        ((tmp_path / "none", tmp_path / "t"), "No such file"),
        ((made, tmp_path / "t", "--algorithm", "best"), "Algorithm must be one of"),
    ):
        ran = cache("convert", *arguments)
        assert ran.status == 2, arguments
        assert said in ran.err
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "t.json").exists()


def test_an_older_sidecar_beside_the_output_is_told(cache: Run, made: Path, tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.cache", "x: 3c010204")
    sidecar = sidecar_path(made).read_bytes()
    ran = cache("convert", plain, made)
    assert "no longer fits" in ran.out
    assert sidecar_path(made).read_bytes() == sidecar
    changed = cache("rename", made, "--out", tmp_path / "n.cache", "--map", "x=z")
    assert "its provenance was not carried over" in changed.out
    assert not sidecar_path(tmp_path / "n.cache").exists()


def test_help_lists_the_commands(cache: Run) -> None:
    out = cache("--help").out
    for command in ("show", "lint", "diff", "merge", "rename", "convert"):
        assert f"\n  {command} " in out
