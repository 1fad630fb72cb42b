"""specla and llama.cpp behind one set of calls, so that one loop measures both."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.core.topology import Tree
from specla.errors import OptionError
from specla.models.load import ModelFile
from specla.models.qwen35.target import TargetOptions, Verified
from specla.models.sequence import Sequence as TargetSequence

Float32 = npt.NDArray[np.float32]
CHUNK = 512


class Engine(Protocol):
    """One sequence of tokens and the time that it takes to move on."""

    def reset(self) -> None:
        """Forget all tokens."""

    def prompt(self, tokens: Sequence[int]) -> float:
        """Seconds until the logits after a prompt are there."""

    def steps(self, tokens: Sequence[int], size: int) -> list[float]:
        """Seconds of each piece of `size` tokens, with the logits of all its rows."""

    def logits(self) -> Float32:
        """[rows, vocabulary] of the last piece."""


class Specla:
    """A piece is a chain that is verified and committed whole, its factors folded by the next."""

    def __init__(self, model: ModelFile, backend: Backend, context: int, max_nodes: int) -> None:
        options = TargetOptions(context=context, max_nodes=max_nodes, chunk=CHUNK)
        self.target = model.target(backend, options)
        self._sequence: TargetSequence | None = None
        self._verified: Verified | None = None

    @property
    def sequence(self) -> TargetSequence:
        """The sequence that `reset` opened."""
        if self._sequence is None:
            self._sequence = self.target.open()
        return self._sequence

    def reset(self) -> None:
        """See Engine."""
        if self._sequence is not None:
            self.target.close(self._sequence)
        self._sequence = None

    def prompt(self, tokens: Sequence[int]) -> float:
        """As a session does: all but the last are prefilled, the last is a lone root."""
        start = time.perf_counter()
        for first in range(0, len(tokens) - 1, CHUNK):
            last = min(first + CHUNK, len(tokens) - 1)
            self.target.prefill([(self.sequence, tokens[first:last])])
        self._verify(tokens[-1:])
        spent = time.perf_counter() - start
        self.target.commit(self.sequence, [0])
        return spent

    def steps(self, tokens: Sequence[int], size: int) -> list[float]:
        """See Engine; the time includes the commit."""
        times = []
        for first in range(0, len(tokens) - size + 1, size):
            start = time.perf_counter()
            self._verify(tokens[first : first + size])
            self.target.commit(self.sequence, list(range(size)))
            times.append(time.perf_counter() - start)
        return times

    def logits(self) -> Float32:
        """See Engine."""
        if self._verified is None:
            raise OptionError("no step was made; there are no logits")
        rows = range(self._verified.offsets[-1])
        return np.stack([self.target.logits(self._verified, row) for row in rows])

    def _verify(self, tokens: Sequence[int]) -> None:
        self._verified = self.target.verify([(self.sequence, Tree.chain(tokens))])


class LlamaCpp:
    """llama.cpp in a process of its own: see llama_worker.cpp. Use `llama_cpp` to make one."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._file = folder / "logits"
        self._answer()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def reset(self) -> None:
        """See Engine."""
        self._ask("reset")

    def prompt(self, tokens: Sequence[int]) -> float:
        """See Engine."""
        return float(self._ask("prompt", len(tokens), *tokens))

    def steps(self, tokens: Sequence[int], size: int) -> list[float]:
        """See Engine."""
        return [float(x) for x in self._ask("steps", len(tokens), size, *tokens).split()]

    def logits(self) -> Float32:
        """See Engine."""
        rows, columns = map(int, self._ask("logits", self._file).split())
        return np.fromfile(self._file, np.float32).reshape(rows, columns)

    def _ask(self, *words: object) -> str:
        if self._process.stdin is None:
            raise OptionError("llama_worker has no input")
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            code = self._process.wait()
            raise OptionError(f"llama_worker ended with status {code}; see the lines above")
        return line


@contextmanager
def llama_cpp(build: Path, model: Path, threads: int, context: int) -> Iterator[LlamaCpp]:
    """Compile the worker against a build of llama.cpp and start it.

    build: CMake's folder. Raises OptionError, one line, when it is none, or g++ fails.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        program = _compile(build, folder)
        command = [str(program), str(model), str(threads), str(context)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield LlamaCpp(process, folder)
        finally:
            process.kill()
            process.wait()


def require_build(build: Path) -> None:
    """Raise OptionError unless the folder holds a build of llama.cpp."""
    wanted = (build / "CMakeCache.txt", build / "bin" / "libllama.so")
    if not all(path.exists() for path in wanted):
        raise OptionError(f"{build}: no build of llama.cpp (bin/libllama.so); see the docstring")


def _compile(build: Path, folder: Path) -> Path:
    cache, libraries = build / "CMakeCache.txt", build.resolve() / "bin"
    require_build(build)
    key = "CMAKE_HOME_DIRECTORY:INTERNAL="
    lines = cache.read_text().splitlines()
    source = Path(next(line for line in lines if line.startswith(key))[len(key) :])
    program = folder / "llama_worker"
    command = ["g++", "-O2", "-std=c++17", str(Path(__file__).with_name("llama_worker.cpp"))]
    command += [f"-I{source / part}" for part in ("include", "ggml/include")]
    command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lllama", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.splitlines() or ["no message"])[-1]
        raise OptionError(f"llama_worker.cpp doesn't compile against {source}: {last}")
    return program
