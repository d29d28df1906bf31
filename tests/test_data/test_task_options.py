from __future__ import annotations

from pathlib import Path

import pytest

from calib.data import load_recipe
from calib.data.task_options import TASK_MODELS, ClassificationOptions, DetectionOptions, parse_task
from calib.errors import DatasetError, UsageError


def recipe(folder: Path, task: str) -> Path:
    path = folder / "data.yaml"
    path.write_text(f"schema: 1\nname: mine\nsource: {{kind: digits}}\n{task}\n")
    return path


@pytest.mark.parametrize("kind", [kind for kind in TASK_MODELS if kind not in ("detection", "custom")])
def test_a_plain_name_is_a_task_without_options(tmp_path: Path, kind: str) -> None:
    task = load_recipe(recipe(tmp_path, f"task: {kind}")).task
    assert task is not None
    assert (task.kind, type(task)) == (kind, TASK_MODELS[kind])


def test_options_are_read(tmp_path: Path) -> None:
    task = load_recipe(
        recipe(tmp_path, "task:\n  kind: detection\n  decoder: yolov8\n  class_map: {0: 17}\n  nms: 0.5")
    ).task
    assert isinstance(task, DetectionOptions)
    assert (task.decoder, task.class_map, task.nms) == ("yolov8", {0: 17}, 0.5)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "task: {kind: detection, decoder: yolov8, confidenc: 1}",
            r"line 4, key task.confidenc: unknown key 'confidenc'. Did you mean 'confidence'\? Allowed keys",
        ),
        (
            "task:\n  kind: segmentation\n  chanels: last",
            r"line 6, key task.chanels: unknown key 'chanels'. Did you mean 'channels'\?",
        ),
        (
            "task: clasification",
            r"line 4, key task: unknown kind 'clasification'. Did you mean 'classification'\? Allowed kinds: "
            "classification, detection, segmentation, regression, embedding, text, custom",
        ),
        (
            "task: {decoder: yolov8}",
            "line 4, key task: key 'kind' is missing. Allowed kinds: classification, det",
        ),
        ("task: detection", "line 4, key task: key 'decoder' is missing"),
        (
            "task:\n  kind: detection\n  decoder: yolo8",
            "line 6, key task.decoder: unknown decoder 'yolo8': expected yolov5, .*, or module:function",
        ),
        (
            "task: {kind: detection, decoder: yolov8, confidence: 2}",
            "key task.confidence: value should be less than or equal to 1, got 2",
        ),
        (
            "task: {kind: detection, decoder: yolov8, class_map: coco}",
            "key task.class_map: expected 'identity' or 'coco80_to_91', got 'coco'",
        ),
        ("task: {kind: custom, metric: score}", "key task.metric: String should match pattern"),
        (
            "task: {kind: text, characters: ../c.txt}",
            "key task.characters: must stay inside the data root, got '../c.txt'",
        ),
        (
            "task: {kind: classification, top_k: 1}",
            "key task.top_k: value should be greater than or equal to 2",
        ),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_line(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load_recipe(recipe(tmp_path, lines))


def test_sources_keep_their_own_kinds(tmp_path: Path) -> None:
    path = recipe(tmp_path, "task: text")
    path.write_text(path.read_text().replace("digits", "digit"))
    with pytest.raises(DatasetError, match=r"unknown kind 'digit'. Did you mean 'digits'\?") as caught:
        load_recipe(path)
    assert "segmentation" not in str(caught.value)


def test_tasks_in_python() -> None:
    assert parse_task("classification") == ClassificationOptions()
    assert parse_task(ClassificationOptions(top_k=3)).kind == "classification"
    with pytest.raises(UsageError, match=r"task classification\.top: Extra inputs are not permitted, got 3"):
        parse_task({"kind": "classification", "top": 3})
    with pytest.raises(UsageError, match=r"^task: Input tag 'x' found"):
        parse_task("x")
