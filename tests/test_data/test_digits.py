"""scikit-learn's digits as a source."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calib.data import open_calibration, open_validation
from calib.data.sources.digits import enlarge


def all_digits(recipe, options="", more=""):
    text = f"source: {{kind: digits{options}}}\ncalibration: {{samples: 1}}\n{more}"
    return open_validation(recipe(text), allow_overlap=True)


def test_stored_size_is_as_scikit_learn_has_it(recipe):
    dataset, bunch = all_digits(recipe), load_digits()
    assert len(dataset) == 1797
    assert dataset.labels == tuple(bunch.target.tolist())
    sample = dataset[100]
    assert (sample.id, sample.origin) == ("digits#100", "scikit-learn digits: image 100")
    np.testing.assert_array_equal(sample.inputs["input"], bunch.images[100][None])
    assert sample.inputs["input"].dtype == np.float32


@pytest.mark.parametrize("size", [9, 16, 28, 32])
def test_enlarging_is_torchs_bilinear(size):
    torch = pytest.importorskip("torch")
    image = load_digits().images[7].astype(np.float32)
    wanted = torch.nn.functional.interpolate(
        torch.tensor(image)[None, None], size=size, mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(enlarge(image, size), wanted[0, 0].numpy(), atol=2e-5)


def test_layout_and_input_name(recipe):
    dataset = all_digits(recipe, ", size: 10, input: pixels", "preprocess: {layout: hwc}")
    assert dataset[0].inputs["pixels"].shape == (10, 10, 1)


def test_calibration_covers_all_digits(recipe):
    dataset = open_calibration(recipe("source: {kind: digits}\ncalibration: {samples: 10}"))
    assert sorted(dataset.labels) == list(range(10))
