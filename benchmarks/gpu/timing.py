"""Seconds of work on a GPU: medians by device events, with no Python between the kernels."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

REPEATS = 15
COLD = 512 << 20


class Timer:
    """Times what a function launches. rehearsal: runs it once and has no time to tell.

    The launches are captured in a graph, since launching from Python takes longer than most of
    these kernels. Where that is impossible, they are timed as they are made, and ``eager`` says why
    for each such case. Whoever asks sees to it that what is read again lies in no cache: functions
    go round more memory than the second-level cache holds.
    """

    def __init__(self, *, rehearsal: bool, repeats: int = REPEATS) -> None:
        self.rehearsal = rehearsal
        self.repeats = repeats
        self.eager: list[str] = []
        self._bandwidths: dict[tuple[str, int], float | None] = {}

    def seconds(self, name: str, run: Callable[[], object]) -> float | None:
        """Median of a few runs of everything that ``run`` launches."""
        if self.rehearsal:
            run()
            return None
        return self._median(self._captured(name, run))

    def copy_bandwidth(self, device: str, size: int) -> float | None:
        """Bytes per second of a copy of ``size`` bytes within the GPU's memory, read and written
        bytes together. Measured once. Raises RuntimeError if the copy isn't one.
        """
        import torch

        if (device, size) not in self._bandwidths:
            words = torch.arange(size // 8, dtype=torch.int64, device=device)
            target = torch.zeros_like(words)
            seconds = self.seconds("copy", lambda: target.copy_(words))
            if not torch.equal(words, target):
                raise RuntimeError("a copy within the GPU's memory differs from its source")
            self._bandwidths[device, size] = ratio(2.0 * size, seconds)
        return self._bandwidths[device, size]

    def _captured(self, name: str, run: Callable[[], object]) -> Callable[[], object]:
        import torch

        # compiles, and allocates what the captured calls find in place
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            run()
            run()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph: Any = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                run()
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.eager.append(f"{name}: {' '.join(str(error).split())[:200]}")
            return run
        # the method keeps the graph and its memory alive
        replay: Callable[[], object] = graph.replay
        return replay

    def _median(self, run: Callable[[], object]) -> float:
        import torch

        run()
        times = []
        for _ in range(self.repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            times.append((start, end))
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in times) / 1e3


def cache_bytes(device: str) -> int:
    """Size of the second-level cache; 0 without a GPU."""
    import torch

    if not device.startswith("cuda"):
        return 0
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def cold_bytes(device: str) -> int:
    """Memory to go round so that no cache holds what is read again; 0 without a GPU.

    Some GPUs have a larger cache behind the second level, of which torch doesn't know.
    """
    size = cache_bytes(device)
    return max(3 * size, COLD) if size else 0


def ratio(a: float | None, b: float | None) -> float | None:
    """a / b where both are known."""
    return None if a is None or b is None or not b else a / b


def shown(value: float | None, scale: float = 1.0) -> Any:
    """For a cell of a table."""
    return "-" if value is None else value * scale
