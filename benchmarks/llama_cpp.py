"""specla against llama.cpp: the same file, the same threads, in turns (A B A B ...).

    python benchmarks/llama_cpp.py --llama BUILD --model MODEL.gguf --threads 2 --runs 5

A native build of llama.cpp (prebuilt wheels leave out instructions that the CPU may have; takes ten
minutes on two cores, then nothing is downloaded any more):

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    tar xf llama_cpp_python-0.3.36.tar.gz
    cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B BUILD -DCMAKE_BUILD_TYPE=Release \\
        -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \\
        -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DGGML_CCACHE=OFF
    cmake --build BUILD -j 2 --target llama

First the check: a verify of 8 nodes has the bytes of one-token steps, on the compiled backend and,
for a few tokens, on the NumPy reference; with a difference nothing is measured. llama.cpp computes
in another order, so its agreement is printed for orientation only.

Then, medians of the runs:
* plain decoding, one token at a time. specla: a session without drafts, choice of the token
  included; llama.cpp: forward passes over the same tokens, the choice left out.
* a prompt of 128 and 512 tokens, until the logits of its last row are there.
* a step over n tokens with the logits of all rows, context moving on by n: what a verify costs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from engines import Engine, LlamaCpp, Specla, llama_cpp, require_build
from harness import (
    PAUSE,
    Neighbours,
    Table,
    add_backend_options,
    add_model_option,
    argument_parser,
    interleaved,
    machine_line,
    median_ratio,
    numba_backend,
)

from specla.adapters.base import create_adapter
from specla.backends.numpy.backend import NumpyBackend
from specla.check import canonical_bytes
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import SpeclaError
from specla.models.load import ModelFile, open_model

NODES = (1, 2, 4, 8, 16, 22)
PROMPTS = (128, 512)
PARTS = ("plain", "prompts", "steps")
NAMES = ("specla", "llama.cpp")
PREFIX = 32
CONTEXT = 1024


def random_tokens(model: ModelFile, count: int) -> list[int]:
    """Any tokens but the special ones: speed doesn't depend on them."""
    size = model.config.vocab_size - len(model.tokenizer.special_tokens) - 300
    rng = np.random.default_rng(1)
    return [int(token) for token in rng.integers(0, max(size, 256), count)]


def one_by_one(engine: Specla, prefix: list[int], tokens: list[int]) -> np.ndarray:
    """Logits [tokens, vocabulary] of one-token steps: prefill kernels, no trees, no banks."""
    engine.reset()
    target, sequence, rows = engine.target, engine.sequence, []
    for token in prefix:
        target.prefill([(sequence, [token])])
    for token in tokens:
        verified = target.prefill([(sequence, [token])], logits=True)
        if verified is None:
            raise SpeclaError("prefill returned no logits")
        rows.append(target.logits(verified, 0))
    return np.stack(rows)


def bytes_equal(engine: Specla, model: ModelFile, tokens: list[int], few: int) -> bool:
    """Whether a verify is plain decoding, and the first `few` tokens the reference's."""
    prefix, nodes = tokens[:PREFIX], tokens[PREFIX : PREFIX + 8]
    plain = one_by_one(engine, prefix, nodes)
    engine.reset()
    engine.prompt(prefix)
    engine.steps(nodes, len(nodes))
    same = canonical_bytes(engine.logits()) == canonical_bytes(plain)
    print(f"verify of 8 nodes and one-token steps: bytes {'equal' if same else 'DIFFER'}")
    if few:
        # chain and steps must be the reference's from the first position on
        reference = Specla(model, NumpyBackend(), few + 1, few)
        wanted = one_by_one(reference, [], tokens[:few])
        engine.reset()
        engine.steps(tokens[:few], few)
        equal = canonical_bytes(engine.logits()) == canonical_bytes(wanted)
        print(f"verify of {few} nodes and NumPy's steps: bytes {'equal' if equal else 'DIFFER'}")
        same = same and equal
    return same


def compare_logits(engines: tuple[Engine, Engine], tokens: list[int]) -> str:
    """How far the two agree on one prompt."""
    results = []
    for engine in engines:
        engine.reset()
        engine.steps(tokens[:PREFIX], PREFIX)
        results.append(engine.logits())
        time.sleep(PAUSE)
    ours, theirs = results
    agreement = np.mean(ours.argmax(1) == theirs.argmax(1))
    return (
        f"llama.cpp on a prompt of {PREFIX}: same top token in {100 * agreement:.0f} % of the "
        f"rows, largest difference of a logit {np.abs(ours - theirs).max():.3f}, standard "
        f"deviation of the logits {ours.std():.2f}"
    )


def plain_specla(engine: Specla, tokens: list[int], count: int) -> Callable[[], float]:
    """Seconds per token of a session without drafts."""

    def run() -> float:
        engine.reset()
        with Session(engine.target, create_adapter("none"), tokens[:PREFIX]) as session:
            sampler = Sampler(SamplingParams())
            for _ in session.generate(Request(2, sampler, budget=0)):
                pass
            start = time.perf_counter()
            for _ in session.generate(Request(count, sampler, budget=0)):
                pass
            return (time.perf_counter() - start) / count

    return run


def plain_llama(engine: LlamaCpp, tokens: list[int], count: int) -> Callable[[], float]:
    """Seconds per token of one-token steps."""

    def run() -> float:
        engine.reset()
        engine.prompt(tokens[:PREFIX])
        engine.steps(tokens[PREFIX : PREFIX + 2], 1)
        return sum(engine.steps(tokens[PREFIX + 2 : PREFIX + 2 + count], 1)) / count

    return run


def prompt_of(engine: Engine, tokens: list[int]) -> Callable[[], float]:
    """Seconds per token of a prompt."""

    def run() -> float:
        engine.reset()
        return engine.prompt(tokens) / len(tokens)

    return run


def steps_of(engine: Engine, tokens: list[int], size: int, repeats: int) -> Callable[[], float]:
    """Median seconds of a step over `size` tokens."""

    def run() -> float:
        engine.reset()
        engine.prompt(tokens[:PREFIX])
        pieces = tokens[PREFIX : PREFIX + size * (repeats + 1)]
        return statistics.median(engine.steps(pieces, size)[1:])

    return run


def measure_tokens(
    ours: Specla, theirs: LlamaCpp, tokens: list[int], args: argparse.Namespace
) -> None:
    """Print the table of plain decoding and prompts."""
    engines: tuple[Engine, Engine] = (ours, theirs)
    tasks: dict[str, list[Callable[[], float]]] = {}
    if "plain" in args.parts:
        plain = plain_specla(ours, tokens, args.tokens), plain_llama(theirs, tokens, args.tokens)
        tasks["plain decoding"] = list(plain)
    for size in PROMPTS if "prompts" in args.parts else ():
        tasks[f"prompt of {size}"] = [prompt_of(engine, tokens[:size]) for engine in engines]
    if not tasks:
        return
    table = Table("tokens/s", *NAMES, "specla / llama.cpp")
    for name, pair in tasks.items():
        for run in pair:
            run()
        a, b = interleaved(dict(zip(NAMES, pair, strict=True)), args.runs, PAUSE).values()
        table.row(name, 1 / statistics.median(a), 1 / statistics.median(b), median_ratio(b, a))
    print()


def measure_steps(
    ours: Specla, theirs: LlamaCpp, tokens: list[int], args: argparse.Namespace
) -> None:
    """Print the table of what a step costs."""
    runs: dict[str, Callable[[], float]] = {}
    engines: tuple[Engine, Engine] = (ours, theirs)
    for name, engine in zip(NAMES, engines, strict=True):
        for size in args.nodes:
            runs[f"{name} {size}"] = steps_of(engine, tokens, size, args.repeats)
    interleaved(runs, 1)
    results = interleaved(runs, args.runs, PAUSE)
    table = Table("logits of n rows", *(f"n = {size}" for size in args.nodes))
    for name in NAMES:
        series = [results[f"{name} {size}"] for size in args.nodes]
        table.row(f"{name}, ms", *(1e3 * statistics.median(times) for times in series))
        ratios = [median_ratio(times, series[0]) for times in series]
        table.row(f"{name}, over n = {args.nodes[0]}", *ratios)
    pairs = [(results[f"{NAMES[1]} {size}"], results[f"{NAMES[0]} {size}"]) for size in args.nodes]
    table.row("llama.cpp's time over specla's", *(median_ratio(b, a) for b, a in pairs))


def main() -> int:
    parser = argument_parser(__doc__)
    add_model_option(parser)
    add_backend_options(parser)
    parser.add_argument("--llama", type=Path, required=True, help="build folder of llama.cpp")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32, help="of a run of plain decoding")
    parser.add_argument("--repeats", type=int, default=5, help="steps of a run")
    parser.add_argument("--reference", type=int, default=3, help="tokens to check against NumPy")
    args = parser.parse_args()
    try:
        require_build(args.llama)  # before minutes of work
        model = open_model(args.model)
        backend = numba_backend(args)
        backend.prepare(model.matrix_kinds)
        print(f"{args.model.name}; {machine_line(backend)}", flush=True)
        tokens = random_tokens(model, CONTEXT - 2)
        ours = Specla(model, backend, CONTEXT, max((*args.nodes, PREFIX)))
        if not bytes_equal(ours, model, tokens, args.reference):
            print("NOT MEASURED: specla's bytes differ")
            return 1
        with llama_cpp(args.llama, args.model, args.threads, CONTEXT) as theirs:
            neighbours = Neighbours([theirs.pid])
            print(compare_logits((ours, theirs), tokens) + "\n", flush=True)
            measure_tokens(ours, theirs, tokens, args)
            if "steps" in args.parts:
                measure_steps(ours, theirs, tokens, args)
            print(f"\n{args.runs} runs in turns; {neighbours.line()}")
    except SpeclaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
