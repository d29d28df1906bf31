"""``calib validate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calib.validation import PyTorchOptions, Results

__all__ = ["validate_command"]


_Caches = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="<path>", help="Calibration cache; INT8 needs one. May be repeated, to compare several."
    ),
]
_LatencySeconds = Annotated[float, typer.Option(help="Time for timing all precisions, at most.")]
_KeepFloat = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Nodes that stay in float in INT8; may be repeated."),
]
_Precisions = Annotated[
    str | None,
    typer.Option(help="Which to compare, such as fp32,fp16,int8; all that the runner has by default."),
]
_Recipe = Annotated[str, typer.Option(help="Dataset recipe: a YAML file, or the name of a shipped one.")]
_Runner = Annotated[
    str,
    typer.Option(
        help="onnxruntime: the CPU, with INT8 simulated in float. tensorrt: engines on a GPU. "
        "pytorch: the network of --torch."
    ),
]
_Scores = Annotated[str | None, typer.Option(help="The output that holds class scores, if several could.")]
_Overlap = Annotated[bool, typer.Option("--allow-overlap", help="Validate on calibration samples too.")]
_Torch = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FACTORY", help="The network that the model came from, for --runner pytorch."
    ),
]
_TorchArguments = Annotated[
    list[str] | None,
    typer.Option("--torch-arg", metavar="NAME=VALUE", help="Argument of the factory; may be repeated."),
]
_TorchDevice = Annotated[
    str | None, typer.Option(help="cuda, cuda:1 or cpu; a GPU by default, where there is one.")
]
_Shapes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="INPUT:SHAPE",
        help="Range of an input for --runner tensorrt: x:1x3x224x224, or smallest:usual:largest of these; "
        "may be repeated.",
    ),
]
_Level = Annotated[int | None, typer.Option(help="TensorRT's builder optimization level, 0 to 5.")]
_Route = Annotated[
    str,
    typer.Option(help="INT8 engines: implicit (from the cache), explicit (Q/DQ model), both, or auto."),
]
_ConvTranspose = Annotated[
    str,
    typer.Option(
        help="Transposed convolutions of INT8 engines: int8, float, or auto: float before TensorRT 10, which "
        "builds no engine above level 0 where their output is INT8."
    ),
]
_Rest = Annotated[str, typer.Option(help="What else INT8 engines may compute in: fp16 or fp32.")]
_Workspace = Annotated[int | None, typer.Option(help="TensorRT's largest scratch memory of a layer, MiB.")]
_TimingCache = Annotated[Path | None, typer.Option(help="Folder or file for TensorRT's kernel timings.")]
_EngineCache = Annotated[Path | None, typer.Option(help="Folder where TensorRT engines are kept.")]
_CudaGraph = Annotated[bool, typer.Option("--cuda-graph", help="Time engines launched as CUDA graphs.")]
_Transfers = Annotated[
    bool, typer.Option("--transfers", help="Latency of engines with the transfers to and from the GPU.")
]
_Profile = Annotated[bool, typer.Option(help="Time each layer of an engine.")]
_Rebuilds = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Build each TensorRT engine N times without kept timings: what differs by the build alone.",
    ),
]
_IntegerKernels = Annotated[
    bool,
    typer.Option(
        "--integer-kernels",
        help="Run INT8 by ONNX Runtime's integer kernels too, and say how many steps they are from the "
        "simulation.",
    ),
]
_Simulation = Annotated[
    bool, typer.Option(help="Compare INT8 engines with the simulation of their arithmetic on the CPU.")
]
_TorchWeights = Annotated[Path | None, typer.Option(help="State dict of the network.")]
_Workers = Annotated[
    int | None, typer.Option(help="Processes that read samples; by default what the recipe says.")
]
_Threads = Annotated[int | None, typer.Option(help="Threads inside an operator; one a core.")]


def validate_command(
    model: Annotated[Path, typer.Argument(help="The FP32 ONNX model.", metavar="MODEL.onnx")],
    data: _Recipe,
    precisions: _Precisions = None,
    runner: _Runner = "onnxruntime",
    cache: _Caches = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results.json.")] = None,
    samples: Annotated[int | None, typer.Option(help="Validation samples; all by default.")] = None,
    batch_size: Annotated[int, typer.Option(help="Samples a batch.")] = 32,
    latency_batch: Annotated[int, typer.Option(help="Samples in a timed batch.")] = 1,
    latency_count: Annotated[int, typer.Option(help="Timed batches a precision; 0 for none.")] = 100,
    latency_seconds: _LatencySeconds = 30.0,
    keep_float: _KeepFloat = None,
    scores: _Scores = None,
    allow_overlap: _Overlap = False,
    threads: _Threads = None,
    workers: _Workers = None,
    torch: _Torch = None,
    torch_weights: _TorchWeights = None,
    torch_arguments: _TorchArguments = None,
    torch_device: _TorchDevice = None,
    torch_compile: Annotated[
        bool, typer.Option("--torch-compile", help="Apply torch.compile to the network.")
    ] = False,
    shapes: _Shapes = None,
    level: _Level = None,
    route: _Route = "auto",
    conv_transpose: _ConvTranspose = "auto",
    rest: _Rest = "fp16",
    workspace: _Workspace = None,
    timing_cache: _TimingCache = None,
    engine_cache: _EngineCache = None,
    cuda_graph: _CudaGraph = False,
    transfers: _Transfers = False,
    profile: _Profile = True,
    simulation: _Simulation = True,
    rebuilds: _Rebuilds = 1,
    integer_kernels: _IntegerKernels = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Compare a model's FP32, FP16 and INT8: outputs, accuracy, latency."""
    from calib.validation import EngineOptions, validate

    wanted = None if precisions is None else [name.strip() for name in precisions.split(",") if name.strip()]
    results = validate(
        model,
        data,
        precisions=wanted,
        runner=runner,
        cache=cache,
        samples=samples,
        batch_size=batch_size,
        out=out,
        latency_batch=latency_batch,
        latency_count=latency_count,
        latency_seconds=latency_seconds,
        keep_float=keep_float or (),
        scores=scores,
        allow_overlap=allow_overlap,
        threads=threads,
        workers=workers,
        torch=_network(torch, torch_weights, torch_arguments, torch_device, torch_compile),
        engine=EngineOptions(
            shapes=tuple(shapes or ()),
            level=level,
            route=route,
            conv_transpose=conv_transpose,
            rest=rest,
            workspace_mib=workspace,
            timing_cache=timing_cache,
            engine_cache=engine_cache,
            cuda_graph=cuda_graph,
            transfers=transfers,
            profile=profile,
            simulation=simulation,
            rebuilds=rebuilds,
        ),
        integer_kernels=integer_kernels,
    )
    _show(results, out, as_json)


def _network(
    module: str | None, weights: Path | None, arguments: list[str] | None, device: str | None, compiled: bool
) -> PyTorchOptions | None:
    from calib.errors import UsageError
    from calib.graph.torch_module import parse_arguments
    from calib.validation import PyTorchOptions

    if module is not None:
        return PyTorchOptions(module, weights, parse_arguments(arguments or ()), device, compiled)
    given = {"weights": weights, "arg": arguments, "device": device, "compile": compiled}
    for name, value in given.items():
        if value:
            raise UsageError(f"--torch-{name} is for the network of --torch: give that too.")
    return None


def _show(results: Results, out: Path | None, as_json: bool) -> None:
    from calib.cli.tables import print_results

    if as_json:
        typer.echo(results.to_json(), nl=False)
        return
    for doubt in results.doubts:
        typer.echo(f"warning: {doubt}", err=True)
    print_results(results)
    for warning in results.warnings:
        if warning not in results.doubts:
            typer.echo(f"warning: {warning}", err=True)
    if out is not None:
        typer.echo(f"Results: {out / 'results.json'}")
