"""How runs of one model differ from each other, not from FP32; part of the results' schema."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BuildDifference", "KernelDifference", "RebuildRecord", "SimulationDifference"]


@dataclass(frozen=True)
class BuildDifference:
    """One output of a further build of an engine against the first build's.

    Attributes:
        output: The output.
        sqnr_db: Its SQNR against the first build's, in dB; None where they are equal or cannot be compared.
        max_abs: Largest absolute difference.
        verdict: "equal", "differs", or why they cannot be compared, as in ``OutputError``.
    """

    output: str
    sqnr_db: float | None
    max_abs: float | None
    verdict: str


@dataclass(frozen=True)
class RebuildRecord:
    """How engines of one model differ that were built again and again, without kept timings of kernels.

    Attributes:
        run: Label of the run.
        builds: Number of builds, the run's own among them.
        figures: Metric, or "SQNR of OUTPUT" → its value in each build, the run's own first.
        between: For each further build the errors of its outputs against those of the first.
        changed_answers: For each further build the number of samples that it answers otherwise.
        median_ms: Latency p50 of each build, timed in turn; empty where latency was not measured.
        int8_layers: INT8 layers of each build.
        engine_bytes: Size of each build.
    """

    run: str
    builds: int
    figures: dict[str, tuple[float | None, ...]]
    between: tuple[tuple[BuildDifference, ...], ...]
    changed_answers: tuple[int, ...] = ()
    median_ms: tuple[float, ...] = ()
    int8_layers: tuple[int, ...] = ()
    engine_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelDifference:
    """How far integer kernels are from the simulation in float of the same Q/DQ model, on one output.

    Attributes:
        run: Label of the run with integer kernels.
        simulation: Label of the simulated run.
        output: The output.
        scale: Its scale in the calibration cache; None where it has none.
        max_abs: Largest absolute difference; None where the outputs cannot be compared.
        max_steps: The same in steps of the scale.
        mean_steps: Mean absolute difference in steps of the scale.
        sqnr_db: SQNR of the kernels' output against the simulation's; None where they are equal.
    """

    run: str
    simulation: str
    output: str
    scale: float | None
    max_abs: float | None
    max_steps: float | None
    mean_steps: float | None
    sqnr_db: float | None


@dataclass(frozen=True)
class SimulationDifference:
    """One output of an INT8 engine beside the simulation in float of the same scales.

    Attributes:
        run: Label of the engine's run.
        simulation: What the simulation is called.
        output: The output.
        engine_db: SQNR of the engine against FP32, in dB; None where it cannot be told.
        simulation_db: SQNR of the simulation against FP32.
        between_db: SQNR of the engine against the simulation.
        verdict: "equal", "differs", or why the two cannot be compared, as in ``OutputError``.
        agreement: Share of samples that both answer alike; None where there is no task.
    """

    run: str
    simulation: str
    output: str
    engine_db: float | None
    simulation_db: float | None
    between_db: float | None
    verdict: str
    agreement: float | None = None
