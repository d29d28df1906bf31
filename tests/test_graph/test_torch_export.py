"""Export of real torch networks: values, names, opsets, and one message for each fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import calib
from calib.errors import CalibError, ModelError, UsageError
from calib.graph import ExportedModel, find_target, load_module
from calib.graph.opset import fit_opset

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
torch_networks = pytest.importorskip("torch_networks")

IMAGES = "images:1x3x8x8"


def export(name: str, inputs: Any, **options: Any) -> ExportedModel:
    torch.manual_seed(0)
    return calib.export(f"torch_networks:{name}", inputs=inputs, **options)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([item.name for item in session.get_outputs()], session.run(None, feeds), strict=True))


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExportedModel, Any, Path]:
    """The network, its weights on disk, and its export for TensorRT 8.6 with a dynamic batch."""
    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(3)
    network = torch_networks.Convolutions()
    network(torch.randn(16, 3, 8, 8))  # Gives the batch norm statistics other than 0 and 1.
    torch.save(network.state_dict(), folder / "net.pt")
    exported = calib.export(
        "torch_networks:Convolutions",
        inputs=IMAGES,
        dynamic="batch",
        weights=folder / "net.pt",
        out=folder / "net.onnx",
        output_names=["logits"],
    )
    return exported, network, folder


def test_the_model_computes_what_the_network_does(convolutions: tuple[ExportedModel, Any, Path]) -> None:
    exported, network, folder = convolutions
    images = np.random.default_rng(8).normal(size=(5, 3, 8, 8)).astype(np.float32)
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(images)).numpy()
    network.train()
    got = run(onnx.load(folder / "net.onnx"), images=images)["logits"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    assert [check.shape for check in exported.checks] == [(1, 5), (3, 5)]
    assert all(check.max_abs <= check.limit and check.reference_amax > 0.01 for check in exported.checks)


def test_the_model_is_as_the_target_reads_it(convolutions: tuple[ExportedModel, Any, Path]) -> None:
    exported, _, folder = convolutions
    proto = onnx.load(folder / "net.onnx")
    onnx.checker.check_model(proto, full_check=True)
    # ONNX 1.12 brought opset 17 and IR version 8.
    assert (exported.model.opset, proto.ir_version) == (17, 8)
    assert [str(spec) for spec in exported.model.inputs] == ["float32 [batch, 3, 8, 8]"]
    assert [str(spec) for spec in exported.model.outputs] == ["float32 [batch, 5]"]
    assert {"BatchNormalization", "Mish"}.isdisjoint(node.op_type for node in proto.graph.node)
    record = {entry.key: entry.value for entry in proto.metadata_props}
    assert record == {
        "torch": torch.__version__,
        "source": "torch_networks:Convolutions with net.pt",
        "exported_with": "images 1x3x8x8",
    }


def test_nodes_are_called_after_modules(convolutions: tuple[ExportedModel, Any, Path]) -> None:
    proto = convolutions[0].model.proto
    names = {node.name: list(node.output) for node in proto.graph.node}
    assert names["stem.0/Conv"] == ["stem.0/Conv_output_0"]
    assert names["stem.2/Relu"] == ["stem.2/Relu_output_0"]
    assert names["depthwise/Conv"] == ["depthwise/Conv_output_0"]
    assert names["head/Gemm"] == ["logits"]
    assert "Pad" in names
    assert str(Path(__file__).parents[1]) not in str(proto)


def test_two_exports_are_the_same_bytes(convolutions: tuple[ExportedModel, Any, Path]) -> None:
    folder = convolutions[2]
    again = calib.export(
        "torch_networks:Convolutions",
        inputs=IMAGES,
        dynamic="batch",
        weights=folder / "net.pt",
        output_names=["logits"],
    )
    assert again.files == ()
    assert again.model.to_bytes() == (folder / "net.onnx").read_bytes()


@pytest.mark.parametrize(
    ("target", "opset", "expected"),
    [("tensorrt-10", None, (20, 9)), ("tensorrt-11", None, (20, 9)), ("onnxruntime", 18, (18, 8))],
)
def test_other_targets_have_other_opsets(target: str, opset: int | None, expected: tuple[int, int]) -> None:
    found = export("Perceptron", "x:2x12", target=target, opset=opset)
    assert (found.model.opset, found.model.proto.ir_version) == expected


@pytest.mark.parametrize("opset", [18, 20, 22])
@pytest.mark.parametrize("dynamic", ["batch", None])
def test_higher_opsets_are_quantized_for_tensorrt_8_all_the_same(opset: int, dynamic: str | None) -> None:
    """As ``torch.onnx.export`` writes them without being asked: Pad, Split, mean, Resize and Mish change."""
    exported = export("Convolutions", IMAGES, target="tensorrt-11", opset=opset, dynamic=dynamic)
    lowered, notes = fit_opset(exported.model, find_target("tensorrt-8.6"))
    onnx.checker.check_model(lowered, full_check=True)
    assert lowered.opset_import[0].version == 17
    assert notes[0] == f"opset lowered from {opset} to 17, the highest that tensorrt-8.6 reads"
    images = np.random.default_rng(8).normal(size=(1, 3, 8, 8)).astype(np.float32)
    (expected,) = run(exported.model.proto, images=images).values()
    (got,) = run(lowered, images=images).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    names = {name for item in exported.model.proto.graph.node for name in item.output if name}
    assert names <= {name for item in lowered.graph.node for name in item.output}


def test_outputs_of_dicts_and_tuples_have_names_and_sizes_may_vary() -> None:
    found = export("Upsampler", "2x3x4x6", dynamic="x:0=batch,2=height")
    # The output of the name of the input is called otherwise.
    assert [(spec.name, str(spec)) for spec in found.model.outputs] == [
        ("masks", "float32 [batch, 4, 2*height, 12]"),
        ("aux.0", "float32 [batch, 4]"),
        ("aux.1", "float32 [batch, 3, height, 6]"),
        ("x_out", "float32 [batch, 3, height, 6]"),
    ]
    assert [check.shape for check in found.checks if check.output == "masks"] == [
        (2, 4, 8, 12),
        (4, 4, 16, 12),
    ]


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (
            {"image": (1, 3), "ids": np.array([[1, 9, 3]]), "mask": np.array([[1, 1, 0]])},
            ["ids", "mask", "image"],
        ),
        (["tokens:1x4:int64"], ["tokens"]),
    ],
)
def test_several_inputs_go_by_keyword_or_in_order(inputs: Any, names: list[str]) -> None:
    found = export("Text", inputs, dynamic="batch")
    assert [spec.name for spec in found.model.inputs] == names
    assert [str(spec.dtype) for spec in found.model.inputs][:1] == ["int64"]
    assert {check.shape[0] for check in found.checks} == {1, 3}


def test_a_given_module_is_left_as_it_is() -> None:
    network = torch_networks.Convolutions().train()
    found = calib.export(network, inputs={"images": (2, 3, 8, 8)})
    assert network.training
    assert found.model.fixed_batch == 2
    assert found.model.path == Path("Convolutions.onnx")


@pytest.mark.parametrize(
    ("code", "operators"),
    [
        ("x.mean((2, 3), keepdim=True)", ["GlobalAveragePool"]),
        ("x.mean((-1, -2), keepdim=True)", ["GlobalAveragePool"]),
        ("x.mean((2, 3))", ["ReduceMean"]),
        ("x.mean((1, 2), keepdim=True)", ["ReduceMean"]),
        ("x[0].mean((1, 2), keepdim=True)", ["Gather", "ReduceMean"]),
    ],
)
def test_means_over_height_and_width_are_poolings(code: str, operators: list[str]) -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return eval(code)

    found = calib.export(Mean(), inputs="x:2x3x4x5", target="tensorrt-10")
    assert [node.op_type for node in found.model.proto.graph.node] == operators
    assert found.checks[0].max_abs < 1e-6


def test_a_real_resnet18() -> None:
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    network = models.resnet18(weights=None).eval()
    found = calib.export(network, inputs="images:1x3x64x64", dynamic="batch")
    operators = [node.op_type for node in found.model.proto.graph.node]
    # Twenty convolutions and one Gemm; batch norms are in the convolutions.
    assert (operators.count("Conv"), operators.count("Gemm"), len(operators)) == (20, 1, 49)
    assert [str(spec) for spec in found.model.outputs] == ["float32 [batch, 1000]"]
    names = {node.name: node.op_type for node in found.model.proto.graph.node}
    assert names["layer4.1.conv2/Conv"] == "Conv"
    # PyTorch takes it apart into a mean; as a pooling it can be INT8.
    assert names["avgpool/GlobalAveragePool"] == "GlobalAveragePool"
    images = np.random.default_rng(1).normal(size=(2, 3, 64, 64)).astype(np.float32)
    with torch.inference_mode():
        expected = network(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(
        run(found.model.proto, images=images)["output"], expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "inputs", "options", "error", "message"),
    [
        (
            "Branching",
            "x:2x4",
            {},
            ModelError,
            r"Branching takes its path by the values of a tensor \(.*torch_networks.py, line \d+: "
            r"if x.sum\(\) > 0:\).*torch.where or torch.cond.*dynamo=False",
        ),
        (
            "Decomposed",
            "x:2x4",
            {},
            ModelError,
            "Decomposed uses operator aten._linalg_svd, which PyTorch's exporter cannot write as ONNX",
        ),
        (
            "Folded",
            "x:1x2x8x8",
            {},
            ModelError,
            r"Folded: node 'Col2Im' \(Col2Im\) cannot be written in opset 17.*newer --target",
        ),
        (
            "FixedBatch",
            "x:2x4",
            {"dynamic": "batch"},
            ModelError,
            "size 2 of axis 0 of input 'x' is written into the network, so that 'batch' cannot be dynamic",
        ),
        (
            "Random",
            "x:2x4",
            {},
            ModelError,
            r"does not compute what PyTorch does on x 2x4: output 'output': largest difference .*F.dropout",
        ),
        ("Labelled", "x:2x4", {}, ModelError, "Labelled returns int as 'count'; ONNX outputs are tensors"),
        (
            "Failing",
            "x:2x4",
            {},
            ModelError,
            r"Running Failing on x 2x4 failed: ValueError: the moon is in the way \(.*torch_networks.py, ",
        ),
        (
            "Convolutions",
            "images:1x1x8x8",
            {},
            ModelError,
            r"Running Convolutions on images 1x1x8x8 failed: .* input\[1, 1, 8, 8\] to have 3 channels",
        ),
        (
            "Text",
            ["1x4", "1x4:int64"],
            {},
            ModelError,
            r"scalar types: Long.*without a type is float32: .* as in --input ids:1x4:int64\.",
        ),
        (
            "Text",
            ["1x4:int64"] * 4,
            {},
            UsageError,
            r"do not fit forward\(ids.*of Text: too many positional arguments",
        ),
        (
            "Perceptron",
            "1x12",
            {"output_names": ["a", "b"]},
            UsageError,
            r"--output-names gives 2 names \(a, b\), but the network has 1 output: output",
        ),
        ("Perceptron", "1x12", {"dynamic": "y:0=batch"}, UsageError, "names input 'y'; the inputs are x"),
    ],
)
def test_faults_are_one_message(
    name: str, inputs: Any, options: dict[str, Any], error: type[CalibError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as caught:
        export(name, inputs, out=tmp_path / "net.onnx", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_the_check_the_model_is_written_all_the_same(tmp_path: Path) -> None:
    found = export("Random", "x:2x4", check=False, out=tmp_path / "net.onnx")
    assert found.checks == ()
    assert found.files == (tmp_path / "net.onnx",)


class TestLoading:
    @pytest.mark.parametrize(
        ("source", "options", "error", "message"),
        [
            ("no_such_module:Net", {}, ModelError, "there is no module 'no_such_module'"),
            ("torch_networks:Perceptrom", {}, ModelError, "has no 'Perceptrom'. Did you mean 'Perceptron'"),
            (
                "torch_networks",
                {},
                UsageError,
                "Expected module:factory, such as torchvision.models:resnet18",
            ),
            ("torch_networks:needs_width", {}, ModelError, "missing a required argument: 'width'.*--arg"),
            ("torch_networks:fails", {}, ModelError, "Calling .* failed: RuntimeError: no luck today"),
            ("torch_networks:no_module", {}, ModelError, "made int, expected a torch module"),
            ("torch_networks:number", {}, ModelError, "is no network: expected a torch module.* got int"),
            ("torch_networks:instance", {"arguments": {"a": 1}}, UsageError, "is a module already"),
            ("missing/net.py:Net", {}, ModelError, r"there is no file missing/net\.py"),
        ],
    )
    def test_what_is_no_network(
        self, source: str, options: dict[str, Any], error: type[CalibError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            load_module(source, **options)

    def test_a_file_and_its_neighbours(self, tmp_path: Path) -> None:
        (tmp_path / "calib_test_layers.py").write_text("from torch import nn\nlayer = nn.Linear\n")
        (tmp_path / "net.py").write_text(
            "from calib_test_layers import layer\n"
            "class Nets:\n"
            "    @staticmethod\n"
            "    def small(width=2):\n"
            "        return layer(width, 1)\n"
        )
        found = load_module(f"{tmp_path}/net.py:Nets.small", arguments={"width": 6})
        assert found.in_features == 6
        assert not found.training
        with pytest.raises(ModelError, match=r"net\.py has no 'Netz'. Did you mean 'Nets'"):
            load_module(f"{tmp_path}/net.py:Netz")

    def test_a_file_that_fails(self, tmp_path: Path) -> None:
        (tmp_path / "net.py").write_text("import os\n1 / 0\n")
        with pytest.raises(ModelError, match=r"importing .*net\.py failed: ZeroDivisionError.*line 2"):
            load_module(f"{tmp_path}/net.py:Net")

    @pytest.mark.parametrize("wrapped", ["plain", "state_dict", "model", "parallel"])
    def test_weights_as_people_save_them(self, wrapped: str, tmp_path: Path) -> None:
        state = torch_networks.Perceptron().state_dict()
        content: Any = state if wrapped == "plain" else {wrapped: state, "epoch": 3}
        if wrapped == "parallel":
            content = {f"module.{name}": value for name, value in state.items()}
        torch.save(content, tmp_path / "net.pt")
        found = load_module("torch_networks:Perceptron", weights=tmp_path / "net.pt")
        assert torch.equal(found.out.weight, state["out.weight"])

    def test_weights_that_do_not_fit(self, tmp_path: Path) -> None:
        state = torch_networks.Perceptron().state_dict()
        state["out.weight"] = torch.zeros(9, 16)
        state["extra"] = state.pop("hidden.bias")
        torch.save(state, tmp_path / "net.pt")
        with pytest.raises(
            ModelError,
            match=r"lacks hidden.bias; it has extra, which the network has not; it has another shape of "
            r"out.weight \(\[9, 16\], the network has \[4, 16\]\)",
        ):
            load_module("torch_networks:Perceptron", weights=tmp_path / "net.pt")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (torch_networks.Perceptron, r"cannot be read as tensors alone \(weights_only=True\)"),
            ([1, 2], r"hold list, expected a state dict"),
        ],
    )
    def test_weights_that_are_more_or_less(self, content: Any, message: str, tmp_path: Path) -> None:
        torch.save(content() if callable(content) else content, tmp_path / "net.pt")
        with pytest.raises(ModelError, match=message):
            load_module("torch_networks:Perceptron", weights=tmp_path / "net.pt")

    def test_weights_that_are_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"No such weights: .*net\.pt"):
            load_module("torch_networks:Perceptron", weights=tmp_path / "net.pt")
        (tmp_path / "net.pt").write_text("hello")
        with pytest.raises(ModelError, match="cannot be read as tensors alone"):
            load_module("torch_networks:Perceptron", weights=tmp_path / "net.pt")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from calib.cli.app import app

    monkeypatch.chdir(tmp_path)
    words = [
        "export",
        "torch_networks:needs_width",
        "--arg",
        "width=4",
        "--input",
        IMAGES,
        "--dynamic",
        "batch",
    ]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "input images: float32 [batch, 3, 8, 8]\noutput output: float32 [batch, 5]\n" in shown.output
    assert "checked: output 3x5 is PyTorch's within " in shown.output
    assert shown.output.endswith("needs_width.onnx\n")
    record = json.loads(CliRunner().invoke(app, [*words, "--no-check", "--json"]).output)
    assert (record["opset"], record["checks"], record["target"]) == (17, [], "tensorrt-8.6")
    assert record["sha256"] == calib.graph.load_model("needs_width.onnx").sha256


def test_weights_that_one_file_cannot_hold_go_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("external", "runtime", "torch_export"):
        monkeypatch.setattr(f"calib.graph.{place}.PROTOBUF_LIMIT", 4096)
    # 32·32·9·9 numbers of 4 bytes in the hidden layers.
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 9), torch.nn.Conv2d(32, 32, 9))
    found = calib.export(network, inputs="x:1x3x20x20", out=tmp_path / "net.onnx")
    assert sorted(file.name for file in found.files) == ["net.onnx", "net.onnx.data"]
    assert (tmp_path / "net.onnx").stat().st_size < 8192
    monkeypatch.undo()
    loaded = calib.graph.load_model(tmp_path / "net.onnx")
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in loaded.proto.graph.initializer}
    np.testing.assert_array_equal(weights["1.weight"], network[1].weight.detach().numpy())


@pytest.mark.parametrize("target", ["tensorrt-8.6", "tensorrt-11"])
def test_nvidias_builder_takes_the_model(target: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx_bindings", reason="extra [tensorrt-rtx] is not installed")
    found = export("Convolutions", IMAGES, target=target, dynamic="batch", out=tmp_path / "net.onnx")
    engine = calib.build(
        found.model,
        precision="fp32",
        flavour="tensorrt_rtx",
        compute_capability=(8, 6),
        shapes=["images:1x3x8x8:4x3x8x8:8x3x8x8"],
    )
    assert engine.record.warnings == ()
    assert engine.plan
