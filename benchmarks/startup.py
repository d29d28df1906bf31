"""How long ``import calib`` and ``calib --help`` take, in new processes: median of several runs.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import calib": [sys.executable, "-c", "import calib"],
    "calib --help": [sys.executable, "-m", "calib", "--help"],
}


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Prints the medians."""
    for command in COMMANDS.values():
        seconds(command)
    # In turn, so that a drift of the machine's speed meets all of them.
    rounds = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(RUNS)]
    for name in COMMANDS:
        times = [turn[name] for turn in rounds]
        middle = statistics.median(times)
        print(f"{name:16} median {middle:.3f} s  (of {RUNS}; {min(times):.3f} … {max(times):.3f})")


if __name__ == "__main__":
    main()
