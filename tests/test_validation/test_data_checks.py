"""Faults in data that a model shows: each network here answers rightly to sound data, by construction."""

from __future__ import annotations

import numpy as np
import pytest
from networks import model, node, save, weight
from onnx import TensorProto

from calib import calibrate, check_data, validate
from calib.data import Preprocess, from_arrays, load_recipe
from calib.errors import UsageError, ValidationError
from calib.graph import OnnxModel, TensorSpec, load_model
from calib.validation.batch_norms import NormProbe, find_norms
from calib.validation.data_probe import Preparation, better_than
from calib.validation.input_variants import input_variants, pixel_scale

RANDOM = np.random.default_rng(0)
SIDE = 8


def network(path, nodes, weights, shape=("batch", 3, SIDE, SIDE), classes=3, **options) -> OnnxModel:
    floats = {name: np.asarray(w, "f4") if w.dtype.kind == "f" else w for name, w in weights.items()}
    proto = model(nodes, {"x": shape}, {"y": ["batch", classes]}, floats, **options)
    return load_model(save(proto, path))


@pytest.fixture
def brightest_channel(tmp_path):
    """The class is the channel with the largest mean."""
    nodes = [node("GlobalAveragePool", ["x"], ["g"]), node("Flatten", ["g"], ["y"])]
    return network(tmp_path / "channel.onnx", nodes, {})


@pytest.fixture
def bright_top(tmp_path):
    """Class 0 where the upper half is the brighter one, class 1 where it is the lower."""
    kernel = np.zeros((2, 3, SIDE, SIDE), np.float32)
    kernel[0, :, : SIDE // 2], kernel[1, :, SIDE // 2 :] = 1, 1
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Flatten", ["c"], ["y"])]
    return network(tmp_path / "top.onnx", nodes, {"w": kernel}, classes=2)


@pytest.fixture
def positive(tmp_path):
    """Class 0 where the mean of the values is above 0, class 1 where it is below."""
    nodes = [node("ReduceMean", ["x"], ["m"], axes=[1, 2, 3], keepdims=0)]
    nodes += [node("Unsqueeze", ["m", "axis"], ["u"]), node("Neg", ["u"], ["n"])]
    nodes += [node("Concat", ["u", "n"], ["y"], axis=1)]
    return network(tmp_path / "sign.onnx", nodes, {"axis": np.array([1], np.int64)}, classes=2)


@pytest.fixture
def background(tmp_path):
    """Ten inputs, eleven outputs: class k is output k + 1, as with a background class."""
    weights = np.zeros((10, 11), np.float32)
    weights[np.arange(10), np.arange(1, 11)] = 1
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    return network(tmp_path / "background.onnx", nodes, {"w": weights}, ("batch", 10), 11)


def codes(found):
    return {finding.code: finding for finding in found.findings}


def by_name(found):
    return {one.name: one for one in found.preparations}


def channel_images(count=60):
    labels = np.arange(count) % 3
    images = RANDOM.random((count, 3, SIDE, SIDE)).astype(np.float32) * 0.5
    images[np.arange(count), labels] += 0.5
    return images, labels.tolist()


def half_images(count=60):
    labels = np.arange(count) % 2
    images = RANDOM.random((count, 3, SIDE, SIDE)).astype(np.float32) * 0.5
    images[labels == 0, :, : SIDE // 2] += 0.5
    images[labels == 1, :, SIDE // 2 :] += 0.5
    return images, labels.tolist()


class TestPreparations:
    def test_sound_data_are_left_alone(self, brightest_channel):
        images, labels = channel_images()
        found = check_data(from_arrays("a", {"x": images}, labels), brightest_channel)
        assert "preprocessing" not in codes(found)
        assert codes(found)["accuracy"].message == "FP32 top-1 is 100.0% (94.0 to 100.0%) on 60 samples."
        assert found.passed()

    def test_channels_in_reverse_order(self, brightest_channel):
        images, labels = channel_images()
        found = check_data(from_arrays("a", {"x": images[:, ::-1].copy()}, labels), brightest_channel)
        finding = codes(found)["preprocessing"]
        assert finding.severity == "error"
        # Class 1 keeps its channel: a third is right. Wilson's interval of 20 of 60 and of 60 of 60.
        assert finding.message == (
            "With the channels in reverse order (RGB ↔ BGR) FP32 top-1 would be 100.0% (94.0 to 100.0%) "
            "instead of 33.3% (22.7 to 45.9%) on the same 60 samples."
        )
        assert "preprocess.color: bgr" in finding.advice
        assert not found.passed()

    def test_height_and_width_swapped(self, bright_top):
        images, labels = half_images()
        found = check_data(from_arrays("a", {"x": images.swapaxes(2, 3).copy()}, labels), bright_top)
        finding = codes(found)["preprocessing"]
        assert finding.message.startswith("With height and width swapped FP32 top-1 would be 100.0%")
        assert "preprocess.layout: cwh" in finding.advice

    def test_a_preparation_that_the_model_cannot_run_is_left_out(self, tmp_path):
        # The kernel is 8 high: turned images are only 4 high.
        nodes = [node("Conv", ["x", "w"], ["c"]), node("Flatten", ["c"], ["y"])]
        weights = {"w": weight(2, 3, 8, 4)}
        narrow = network(tmp_path / "m.onnx", nodes, weights, ("batch", 3, "height", "width"), classes=2)
        images = RANDOM.random((20, 3, 8, 4)).astype(np.float32)
        found = check_data(from_arrays("a", {"x": images}, [i % 2 for i in range(20)]), narrow)
        names = by_name(found)
        assert "with the channels in reverse order (RGB ↔ BGR)" in names
        assert not any("swapped" in name for name in names)

    def test_the_advice_helps(self, bright_top, tmp_path):
        images, labels = half_images()
        np.savez(tmp_path / "a.npz", x=images.swapaxes(2, 3), labels=labels)
        for layout, passed in (("", False), ("preprocess: {layout: cwh}\n", True)):
            stored = ", layout: chw" if layout else ""
            (tmp_path / "r.yaml").write_text(
                f"schema: 1\nname: a\ntask: classification\nsource: {{kind: arrays, path: a.npz{stored}}}\n"
                f"{layout}calibration: {{samples: 2}}\n"
            )
            assert check_data(load_recipe(tmp_path / "r.yaml"), bright_top).passed() is passed

    @pytest.mark.parametrize("top", [1, 255])
    def test_values_that_were_to_lie_around_zero(self, positive, top):
        labels = np.arange(60) % 2
        images = RANDOM.random((60, 3, SIDE, SIDE)) * 0.4 + np.where(labels, 0.0, 0.6)[:, None, None, None]
        found = check_data(from_arrays("a", {"x": (images * top).astype(np.float32)}, labels), positive)
        # A dataset from Python has no task: its labels may mean something else.
        assert codes(found)["low-accuracy"].severity == "warning"
        scores = by_name(found)
        assert scores["as in the recipe"].top1 == 0.5
        assert scores["with values from −1 to 1"].top1 == 1.0
        assert scores["with ImageNet's mean and std"].top1 == 1.0
        finding = codes(found)["preprocessing"]
        assert "would be 100.0%" in finding.message
        # Both are right on every sample: neither may be passed off as the only one.
        assert "On these samples as good, or nearly: with " in finding.advice

    def test_two_faults_at_once(self, tmp_path):
        """Channels reversed and values not around zero: class = the only channel whose mean is positive."""
        nodes = [
            node("GlobalAveragePool", ["x"], ["g"]),
            node("Relu", ["g"], ["r"]),
            node("Sign", ["r"], ["s"]),
        ]
        nodes += [node("Mul", ["s", "weigh"], ["w"]), node("Flatten", ["w"], ["y"])]
        weigh = np.array([3, 2, 1], np.float32).reshape(1, 3, 1, 1)
        network_ = network(tmp_path / "two.onnx", nodes, {"weigh": weigh})
        labels = np.arange(60) % 3
        images = np.full((60, 3, SIDE, SIDE), 60.0) + RANDOM.random((60, 3, SIDE, SIDE))
        images[np.arange(60), 2 - labels] = 190 + RANDOM.random((60, SIDE, SIDE))
        found = check_data(from_arrays("a", {"x": images.astype(np.float32)}, labels), network_)
        message = codes(found)["preprocessing"].message
        assert message.startswith(
            "With the channels in reverse order (RGB ↔ BGR) and with values from −1 to 1 FP32 top-1 would be"
        )
        assert "would be 100.0%" in message

    def test_mcnemar_decides_with_labels(self):
        def made(hits):
            return Preparation("", "", np.array(hits, bool), None, 2, None)

        base = made([0] * 12 + [1] * 8)
        # Ten became right and none wrong: p = 2 / 2^10 = 0.00195; times 3 tests 0.0059, times 6 0.0117.
        other = made([1] * 10 + [0] * 2 + [1] * 8)
        assert better_than(base, other, 3)
        assert not better_than(base, other, 6)
        assert not better_than(other, base, 1)

    def test_the_bootstrap_decides_without(self):
        def made(distances):
            return Preparation("", "", None, None, 0, np.array(distances))

        noise = RANDOM.random(40) * 0.1
        assert better_than(made(1 + noise), made(0.5 + noise), 6)
        assert not better_than(made(1 + noise), made(0.9 + noise), 6)
        assert not better_than(made(1 + noise), made(np.where(np.arange(40) % 2, 0.0, 1.7)), 6)


class TestLabels:
    def test_off_by_one(self, background):
        labels = [index % 10 for index in range(40)]
        found = check_data(from_arrays("a", {"x": np.eye(10, dtype=np.float32)[labels]}, labels), background)
        finding = codes(found)["labels-off-by-one"]
        assert finding.severity == "error"
        assert "with every label shifted by +1 it would be 100.0%" in finding.message

    def test_labels_that_have_no_output(self, brightest_channel):
        images, _ = channel_images(12)
        found = check_data(from_arrays("a", {"x": images}, [i % 6 for i in range(12)]), brightest_channel)
        finding = codes(found)["labels-outputs"]
        assert finding.message == ("Labels go from 0 to 5, but output 'y' has 3 scores, for classes 0 to 2.")
        assert finding.where == ("a", str(brightest_channel.path))

    @pytest.mark.parametrize(("names", "severity"), [("abcdef", "error"), ("ab", "warning")])
    def test_class_names_against_outputs(self, brightest_channel, tmp_path, names, severity):
        images, _ = channel_images(12)
        labels = [names[i % 2] for i in range(10)] + [names[-1]] * 2
        np.savez(tmp_path / "a.npz", x=images, labels=[*labels[: -len(names)], *names])
        path = tmp_path / "r.yaml"
        path.write_text(
            "schema: 1\nname: a\ntask: classification\nsource: {kind: arrays, path: a.npz}\n"
            "calibration: {samples: 2}\nvalidation: {allow_overlap: true}\n"
        )
        finding = codes(check_data(path, brightest_channel))["labels-outputs"]
        assert finding.severity == severity
        if severity == "warning":
            assert finding.message.startswith("2 class names, 3 outputs")
        assert finding.where == (str(path), str(brightest_channel.path))

    def test_a_classifier_without_class_scores(self, tmp_path):
        nodes = [node("Relu", ["x"], ["y"])]
        proto = model(nodes, {"x": ["batch", 1, 4]}, {"y": ["batch", 1, 4]})
        save(proto, tmp_path / "m.onnx")
        np.savez(tmp_path / "a.npz", x=RANDOM.random((8, 1, 4)).astype(np.float32), labels=np.arange(8) % 2)
        (tmp_path / "r.yaml").write_text(
            "schema: 1\nname: a\ntask: classification\nsource: {kind: arrays, path: a.npz}\n"
            "calibration: {samples: 2}\n"
        )
        found = codes(check_data(tmp_path / "r.yaml", tmp_path / "m.onnx"))
        assert "a classifier needs a float output" in found["no-class-scores"].message

    def test_the_output_that_the_recipe_names(self, tmp_path):
        nodes = [
            node("GlobalAveragePool", ["x"], ["g"]),
            node("Flatten", ["g"], ["y"]),
            node("Neg", ["y"], ["z"]),
        ]
        images, labels = channel_images(12)
        shapes = {"y": ["batch", 3], "z": ["batch", 3]}
        save(model(nodes, {"x": ["batch", 3, SIDE, SIDE]}, shapes), tmp_path / "m.onnx")
        np.savez(tmp_path / "a.npz", x=images, labels=labels)
        for output, right in (("y", True), ("z", False)):
            (tmp_path / "r.yaml").write_text(
                f"schema: 1\nname: a\ntask: {{kind: classification, output: {output}}}\n"
                "source: {kind: arrays, path: a.npz}\ncalibration: {samples: 3}\n"
            )
            found = codes(check_data(tmp_path / "r.yaml", tmp_path / "m.onnx"))
            assert "no-class-scores" not in found
            assert ("accuracy" in found) == right

    def test_a_named_output_must_exist(self, brightest_channel):
        images, labels = channel_images(6)
        with pytest.raises(UsageError, match="no output 'z'"):
            check_data(from_arrays("a", {"x": images}, labels), brightest_channel, scores="z")


class TestFit:
    def test_channels_last_for_channels_first(self, brightest_channel):
        images = (RANDOM.random((6, SIDE, SIDE, 3)) * 255).astype(np.uint8)
        finding = codes(check_data(from_arrays("a", {"x": images}), brightest_channel))["input-misfit"]
        assert "expected float32 [batch, 3, 8, 8], got uint8 [1, 8, 8, 3], values " in finding.message
        assert "preprocess.layout: chw, and for arrays source.layout: hwc" in finding.advice

    def test_channels_first_for_channels_last(self, tmp_path):
        nodes = [node("ReduceMean", ["x"], ["y"], axes=[1, 2], keepdims=0)]
        hwc = network(tmp_path / "m.onnx", nodes, {}, ("batch", 4, 5, 3))
        finding = codes(check_data(from_arrays("a", {"x": np.zeros((2, 3, 4, 5), "f4")}), hwc))[
            "input-misfit"
        ]
        assert "preprocess.layout: hwc, and for arrays source.layout: chw" in finding.advice

    def test_another_size_has_no_such_advice(self, brightest_channel):
        images = np.zeros((2, 3, 9, 8), np.float32)
        finding = codes(check_data(from_arrays("a", {"x": images}), brightest_channel))["input-misfit"]
        assert (finding.severity, finding.advice) == ("error", "")

    def test_conversions_are_noted(self, brightest_channel):
        images, labels = channel_images(6)
        found = codes(
            check_data(from_arrays("a", {"x": images.astype(np.float64)}, labels), brightest_channel)
        )
        assert found["converted"].message == "Input 'x': float64 converted to float32."

    def test_whole_numbers_have_no_variants(self, tmp_path):
        nodes = [node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("Flatten", ["f"], ["y"])]
        tokens = network(tmp_path / "t.onnx", nodes, {}, ("batch", 3), types={"x": TensorProto.INT64})
        found = check_data(from_arrays("a", {"x": np.eye(3, dtype=np.int64)}, [0, 1, 2]), tokens)
        assert len(found.preparations) == 1
        assert found.passed()


class TestCache:
    """What was recorded at calibration against what the recipe does now."""

    @pytest.fixture
    def calibrated(self, brightest_channel, tmp_path):
        def write(steps):
            text = (
                "schema: 1\nname: a\nsource: {kind: arrays, path: a.npz}\ncalibration: {samples: 40}\n"
                f"preprocess: {steps}\n"
            )
            (tmp_path / "r.yaml").write_text(text)
            return tmp_path / "r.yaml"

        np.savez(tmp_path / "a.npz", x=RANDOM.integers(0, 256, (60, 3, SIDE, SIDE)).astype(np.uint8))
        calibrate(brightest_channel.path, write("{scale: 1/255}"), out=tmp_path / "m.cache")
        return write, tmp_path / "m.cache"

    def test_of_the_same_recipe_is_sound(self, calibrated, brightest_channel):
        write, cache = calibrated
        found = codes(check_data(write("{scale: 1/255}"), brightest_channel, cache=cache))
        assert not {"cache-preprocessing", "cache-range"} & found.keys()

    def test_values_that_are_not_divided(self, calibrated, brightest_channel):
        write, cache = calibrated
        found = codes(check_data(write("{}"), brightest_channel, cache=cache))
        assert found["cache-preprocessing"].severity == "error"
        assert "scale: 0.00392156862745098 → 1.0" in found["cache-preprocessing"].message
        # The entropy calibrator's amax lies half a bin of 2048 above a largest value of 1.
        assert "calibrated for values up to ±1" in found["cache-range"].message
        assert "reach ±255" in found["cache-range"].message

    def test_of_a_foreign_cache_the_ranges_tell(self, calibrated, brightest_channel):
        write, cache = calibrated
        cache.with_name("m.cache.json").unlink()
        found = codes(check_data(write("{}"), brightest_channel, cache=cache))
        assert "cache-preprocessing" not in found
        assert found["cache-range"].where == (str(cache),)


def test_values_that_are_not_finite_are_a_finding_with_a_model_too(brightest_channel):
    images, labels = channel_images()
    images[7, 0, 0, 0] = np.nan
    found = codes(check_data(from_arrays("a", {"x": images}, labels=labels), brightest_channel))
    assert found["not-finite"].severity == "error"
    assert found["not-finite"].where == ("a#7",)


def test_another_resizer_than_at_calibration_is_refused(tmp_path):
    """By the gate as by validation."""
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    (tmp_path / "images").mkdir()
    for index in range(12):
        image.fromarray(RANDOM.integers(0, 256, (40, 40, 3), np.uint8)).save(tmp_path / f"images/{index}.png")

    def recipe(antialias):
        path = tmp_path / f"{antialias}.yaml"
        path.write_text(
            "schema: 1\nname: a\nsource: {kind: images, path: images}\ncalibration: {samples: 4}\n"
            f"preprocess: {{resize: [{SIDE}, {SIDE}], scale: 1/255, antialias: {antialias}}}\n"
        )
        return path

    nodes = [node("Conv", ["x", "w"], ["c"]), node("Flatten", ["c"], ["y"])]
    net = network(tmp_path / "m.onnx", nodes, {"w": weight(3, 3, SIDE, SIDE)})
    calibrate(net.path, recipe("true"), out=tmp_path / "m.cache")
    found = codes(check_data(recipe("false"), net, cache=tmp_path / "m.cache"))["cache-preprocessing"]
    assert found.severity == "error"
    assert "antialias: True → False" in found.message
    assert "resizer: Pillow → torch in float32" in found.message
    with pytest.raises(ValidationError, match=r"resized otherwise: resizer: Pillow.*antialias: True → False"):
        validate(net.path, recipe("false"), cache=tmp_path / "m.cache", latency_count=0)
    results = validate(net.path, recipe("true"), cache=tmp_path / "m.cache", latency_count=0)
    assert not any("Preprocessing differs" in text for text in results.warnings)
    assert results.dataset.preprocess["resizer"] == "Pillow"


class TestBatchNorms:
    KERNEL = RANDOM.standard_normal((4, 3, 1, 1)).astype(np.float32)
    TRAINED = RANDOM.random((200, 3, SIDE, SIDE)).astype(np.float32)

    @pytest.fixture
    def normed(self, tmp_path):
        """Conv → BatchNorm with what it would have learned from TRAINED → Relu → mean → y."""
        seen = np.einsum("oc,nchw->nohw", self.KERNEL[:, :, 0, 0], self.TRAINED.astype(np.float64))
        weights = {
            "w": self.KERNEL,
            "gamma": np.ones(4),
            "beta": np.zeros(4),
            "mean": seen.mean(axis=(0, 2, 3)),
            "var": seen.var(axis=(0, 2, 3)),
        }
        nodes = [
            node("Conv", ["x", "w"], ["c"]),
            node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["b"], name="bn"),
            node("Relu", ["b"], ["r"]),
            node("GlobalAveragePool", ["r"], ["g"]),
            node("Flatten", ["g"], ["y"]),
        ]
        return network(tmp_path / "bn.onnx", nodes, weights, classes=4)

    def test_data_as_in_training(self, normed):
        finding = codes(check_data(from_arrays("a", {"x": self.TRAINED}), normed, samples=None))["batchnorm"]
        assert (finding.severity, finding.where) == ("note", ("bn",))
        assert "gets values 1.01 times as spread as in training, and its" in finding.message

    @pytest.mark.parametrize(("factor", "severity"), [(255, "error"), (6, "warning"), (1 / 255, "error")])
    def test_values_of_another_size(self, normed, factor, severity):
        data = from_arrays("a", {"x": (self.TRAINED[:60] * factor).astype(np.float32)})
        assert codes(check_data(data, normed))["batchnorm"].severity == severity

    def test_figures_are_those_of_the_definition(self, normed):
        images = self.TRAINED[:30] * 2 + 0.5
        probe = NormProbe(normed)
        moments = probe.moments([{"x": images[:20]}, {"x": images[20:]}])
        seen = np.einsum("oc,nchw->nohw", self.KERNEL[:, :, 0, 0], images.astype(np.float64))
        norm = probe.norms[0]
        fit = probe.fits(moments)[0]
        z = (seen.mean(axis=(0, 2, 3)) - norm.mean) / np.sqrt(norm.var)
        ratio = np.sqrt(seen.var(axis=(0, 2, 3)) / norm.var)
        np.testing.assert_allclose(fit.z_rms, np.sqrt(np.mean(z**2)), rtol=1e-5)
        np.testing.assert_allclose(fit.std_ratio, np.median(ratio), rtol=1e-5)
        mean, var = seen.mean(axis=(2, 3)), seen.var(axis=(2, 3))
        kl = 0.5 * (var / norm.var + (mean - norm.mean) ** 2 / norm.var - 1 - np.log(var / norm.var))
        np.testing.assert_allclose(probe.distances(moments), np.log1p(kl).mean(axis=1), rtol=1e-4)

    def test_a_better_preparation_is_found_without_labels(self, normed):
        found = check_data(from_arrays("a", {"x": self.TRAINED[:60] * 255}), normed)
        finding = codes(found)["preprocessing"]
        assert finding.severity == "warning"
        assert finding.message.startswith("With values from 0 to 1 the BatchNorms' inputs would be nearer")

    def test_a_dead_channel_does_not_count(self, normed):
        norm = find_norms(normed)[0]
        norm.var[2] = 0.0
        probe = NormProbe(normed)
        probe.norms = (norm,)
        fit = probe.fits(probe.moments([{"x": self.TRAINED[:20]}]))[0]
        assert fit.channels == 3
        assert fit.std_ratio == pytest.approx(1, abs=0.2)

    @pytest.mark.parametrize(("factor", "doubted"), [(1, False), (255, True), (1 / 4000, True)])
    def test_without_them_the_first_bias_is_a_measure(self, tmp_path, factor, doubted):
        weights = {"w": self.KERNEL, "b": np.full(4, 0.3)}
        nodes = [node("Conv", ["x", "w", "b"], ["c"], name="first"), node("Relu", ["c"], ["r"])]
        nodes += [node("GlobalAveragePool", ["r"], ["g"]), node("Flatten", ["g"], ["y"])]
        folded = network(tmp_path / "c.onnx", nodes, weights, classes=4)
        data = from_arrays("a", {"x": (self.TRAINED[:40] * factor).astype(np.float32)})
        found = codes(check_data(data, folded))
        assert ("first-convolution" in found) is doubted
        if doubted:
            assert found["first-convolution"].where == ("first",)

    def test_nothing_to_judge_by_is_said(self, brightest_channel):
        found = codes(check_data(from_arrays("a", {"x": self.TRAINED[:20]}), brightest_channel))
        assert "neither labels nor BatchNorms" in found["not-judged"].message


class TestVariants:
    SPEC = TensorSpec("x", np.dtype("f4"), ("n", 3, 4, 4))

    @pytest.mark.parametrize(
        "steps",
        [
            Preprocess(scale="1/255", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            Preprocess(scale="1/128", mean="127/128"),
            Preprocess(),
        ],
    )
    def test_are_what_the_recipe_would_have_made(self, steps):
        grey = RANDOM.integers(0, 256, (2, 3, 4, 4)).astype(np.uint8)
        now = np.stack([steps.apply(image, "x", "chw") for image in grey]).astype(np.float32)
        scale = pixel_scale(steps, True, float(now.min()), float(now.max()))
        found = {v.name: v.change(now) for v in input_variants(self.SPEC, now.shape, steps, scale)}
        if "with values from 0 to 1" in found:
            np.testing.assert_allclose(found["with values from 0 to 1"], grey / 255, atol=1e-5)
        if "with values from −1 to 1" in found:
            np.testing.assert_allclose(found["with values from −1 to 1"], grey / 127.5 - 1, atol=1e-5)
        if "with ImageNet's mean and std" in found:
            mean, std = (
                np.reshape([0.485, 0.456, 0.406], (3, 1, 1)),
                np.reshape([0.229, 0.224, 0.225], (3, 1, 1)),
            )
            expected = (grey / 255 - mean) / std
            np.testing.assert_allclose(found["with ImageNet's mean and std"], expected, atol=1e-5)
        # What is done already is no variant; (x - 127) / 128 is as good as from −1 to 1.
        assert len(found) == 5

    def test_of_a_wide_image_sides_are_not_swapped(self):
        spec = TensorSpec("x", np.dtype("f4"), ("n", 1, 4, 6))
        found = input_variants(spec, (2, 1, 4, 6), Preprocess(), None)
        assert [variant.name for variant in found] == ["with values × 255", "with values ÷ 255"]

    @pytest.mark.parametrize(
        ("low", "high", "known"), [(0, 1, True), (0, 255, True), (-1, 1, False), (0, 16, False)]
    )
    def test_how_arrays_were_scaled_is_told_by_their_range(self, low, high, known):
        assert (pixel_scale(Preprocess(), False, low, high) is not None) is known
