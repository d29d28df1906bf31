"""The network in PyTorch itself: what a user has before TensorRT."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Self

from calib.data import Array
from calib.errors import EngineError, ModelError, UsageError, ValidationError
from calib.graph.torch_call import call_form
from calib.graph.torch_module import foreign_code, load_module, module_name, require_torch
from calib.graph.torch_names import flat_outputs, output_names
from calib.runners.casting import as_declared
from calib.wording import counted

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PyTorchRunner"]

_TYPES = {"fp32": "float32", "fp16": "float16"}
_HOST_CLOCK = "host clock (perf_counter) around forward, on the CPU"
_EVENTS = "CUDA events around forward, inputs on the GPU already"


class PyTorchRunner:
    """Runs a torch module, on a GPU where there is one.

    FP32 is float32 throughout: TF32 is off, in matrix products and in cuDNN. FP16 is ``module.half()``:
    weights, inputs and all arithmetic in float16, as a typed FP16 model for TensorRT has it. Autocast
    would keep some operators in float32 and convert in between, which is another precision and slower
    for a small batch. Outputs in float16 come back as float32.

    cuDNN may try its algorithms out (``cudnn.benchmark``), which falls into the warm-up; memory format is
    left as it is. These settings hold while the runner runs and are as before afterwards.

    Attributes:
        name: "pytorch".
        precision: "fp32" or "fp16".
        clock: How ``time_ms`` measures.
        note: What a reader of the figures must know.
        simulated: False: the arithmetic is that of the precision.
        place: The GPU's name, or "CPU".
        input_names: What must be fed.
        output_names: The outputs, in order.
        model_bytes: Size of parameters and buffers in that precision.
        session_options: Every setting that can change a figure, as text.
    """

    name = "pytorch"
    simulated = False

    def __init__(
        self,
        module: nn.Module | Callable[..., Any] | str,
        precision: str,
        *,
        input_names: Sequence[str],
        output_names: Sequence[str],
        device: str | None = None,
        threads: int | None = None,
        compile_module: bool = False,
        note: str | None = None,
    ) -> None:
        """Loads the network.

        Args:
            module: A torch module, which is copied; what makes one; or ``package.module:name``.
            precision: "fp32" or "fp16".
            input_names: The ONNX model's inputs. Where all are parameters of ``forward`` they are passed
                by keyword, otherwise in this order.
            output_names: The ONNX model's outputs. Where the network's own names (keys of a dict) hold
                them all they are found by name, otherwise by order.
            device: "cuda", "cuda:1" or "cpu"; None takes a GPU where torch has one.
            threads: Threads within an operator on the CPU; None leaves PyTorch's own choice.
            compile_module: Runs ``torch.compile`` of the module; compiling falls into the warm-up.
            note: Replaces the runner's own note.

        Raises:
            UsageError: The precision is not PyTorch's, threads are below 1, or the inputs do not fit.
            ModelError: The network cannot be made, copied or converted.
            EngineError: The device is not there.
            MissingExtraError: torch is not installed.
        """
        if precision not in _TYPES:
            raise UsageError(f"The PyTorch runner runs {' and '.join(_TYPES)}, got {precision!r}.")
        if threads is not None and threads < 1:
            raise UsageError(f"Threads must be at least 1, got {threads}.")
        torch = require_torch("Running PyTorch networks")
        self.precision = precision
        self.input_names = tuple(input_names)
        self.output_names = tuple(output_names)
        self._label = f"{module_name(module)} in {precision.upper()} on PyTorch"
        self._device = _find_device(device)
        self._threads = threads
        network = load_module(module)
        self._form = call_form(network, self.input_names, module_name(module))
        with foreign_code(f"Preparing {self._label}"):
            network = network.half() if precision == "fp16" else network.float()
            self._network: Any = network.to(self._device)
        self.model_bytes = sum(
            tensor.numel() * tensor.element_size() for tensor in self._network.state_dict().values()
        )
        self.clock = _EVENTS if self.on_gpu else _HOST_CLOCK
        self.place: str = torch.cuda.get_device_name(self._device) if self.on_gpu else "CPU"
        place = self.place if self.on_gpu else "the CPU"
        self.note = _note(precision, place, self.on_gpu) if note is None else note
        self.session_options = self._settings(place, compile_module)
        if compile_module:
            self._network = torch.compile(self._network)

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU."""
        return bool(self._device.type == "cuda")

    @property
    def gpu(self) -> int | str | None:
        """The GPU's PCI bus id, by which NVML knows it, or CUDA's number of it; None on the CPU."""
        import torch

        if not self.on_gpu:
            return None
        known: Any = torch.cuda.get_device_properties(self._device)
        if not hasattr(known, "pci_bus_id"):
            return int(self._device.index or 0)
        return f"{known.pci_domain_id:08X}:{known.pci_bus_id:02X}:{known.pci_device_id:02X}.0"

    def _settings(self, place: str, compiled: bool) -> dict[str, str]:
        import torch

        return {
            "torch.device": f"{self._device} ({place})",
            "torch.compile": "on" if compiled else "off",
            "torch.threads": str(self._threads or torch.get_num_threads()),
            "torch.cudnn.benchmark": "on",
            "torch.tf32": "off",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import torch

        self._network = None
        if self.on_gpu:
            torch.cuda.empty_cache()

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch.

        Args:
            feeds: One array for each input, batch axis first.

        Returns:
            One array for each output, owned by the caller; float16 as float32.

        Raises:
            ValidationError: A feed is missing or unknown, cannot be held in float16, or the network's
                outputs are not those of the model.
            ModelError: The network fails; the message names the line.
        """
        args, kwargs = self._uploaded(feeds)
        with self._settled():
            returned = self._called(args, kwargs)
            return {name: _to_array(tensor) for name, tensor in self._chosen(returned).items()}

    def time_ms(self, feeds: Mapping[str, Array]) -> float:
        """Runs one batch and returns how long ``forward`` took, in milliseconds.

        Copies to and from a GPU are not in it. On a GPU the time is from the first kernel's turn to the
        last one's end; where PyTorch launches kernels more slowly than they run, its waiting counts.

        Raises:
            ValidationError, ModelError: As ``infer``.
        """
        args, kwargs = self._uploaded(feeds)
        with self._settled():
            if self.on_gpu:
                return self._event_ms(args, kwargs)
            start = time.perf_counter()
            self._called(args, kwargs)
            return (time.perf_counter() - start) * 1e3

    def _event_ms(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        import torch

        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            start.record()
            self._called(args, kwargs)
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end))

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch

        if self._network is None:
            raise UsageError(f"The runner of {self._label} is closed: use it inside its with block.")
        try:
            with foreign_code(f"Running {self._label}"), torch.inference_mode():
                return self._network(*args, **kwargs)
        except ModelError as error:
            if isinstance(error.__cause__, torch.cuda.OutOfMemoryError):
                raise ModelError(f"{error} Take a smaller --batch-size or --latency-batch.") from error
            raise

    def _uploaded(self, feeds: Mapping[str, Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if set(feeds) != set(self.input_names):
            raise ValidationError(
                f"{self._label} has inputs {sorted(self.input_names)}, the feeds are {sorted(feeds)}. "
                "Give one array for each input."
            )
        return self._form.arguments({name: self._tensor(name, feeds[name]) for name in self.input_names})

    def _tensor(self, name: str, array: Array) -> Any:
        import torch

        if array.dtype.kind == "f":
            array = as_declared(name, array, np.dtype(_TYPES[self.precision]))
        # A copy: forward may write into its inputs.
        return torch.tensor(array, device=self._device)

    def _chosen(self, returned: Any) -> dict[str, Any]:
        """The model's outputs among what the network returned."""
        found = flat_outputs(returned, self._label)
        own = output_names([name for name, _ in found], None, self.input_names)
        tensors = [tensor for _, tensor in found]
        if set(self.output_names) <= set(own):
            by_name = dict(zip(own, tensors, strict=True))
            return {name: by_name[name] for name in self.output_names}
        if len(tensors) != len(self.output_names):
            raise ValidationError(
                f"{self._label} returns {counted(len(tensors), 'tensor[s]')} ({', '.join(own)}), the ONNX "
                "model has "
                f"outputs {', '.join(self.output_names)}: they are not the same network."
            )
        return dict(zip(self.output_names, tensors, strict=True))

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Holds the settings that can change a figure, and puts back what was set before."""
        import torch

        products, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
        torch.set_float32_matmul_precision("highest")
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        try:
            with torch.backends.cudnn.flags(
                enabled=True, benchmark=True, deterministic=False, allow_tf32=False
            ):
                yield
        finally:
            torch.set_float32_matmul_precision(products)
            torch.set_num_threads(threads)


def _find_device(wanted: str | None) -> Any:
    import torch

    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise UsageError(f"Device {wanted!r} is unknown. Choose cuda, cuda:0 or cpu.") from error
    if device.type not in ("cuda", "cpu"):
        raise UsageError(f"Device {wanted!r} is not supported. Choose cuda, cuda:0 or cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(
            f"Device {wanted!r}: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs here. "
            "Choose another one or cpu, or install a torch built for this machine's CUDA."
        )
    return device


def _note(precision: str, place: str, on_gpu: bool) -> str:
    kind = "float32 (TF32 off)" if precision == "fp32" else "float16 throughout (module.half())"
    slow = ", where few operators are fast in float16" if precision == "fp16" and not on_gpu else ""
    return f"PyTorch in {kind} on {place}{slow}"


def _to_array(tensor: Any) -> Array:
    import torch

    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    # A copy: the tensor may be a buffer of the network, or an input.
    return np.array(tensor.detach().cpu().numpy())
