"""End to end: the speed of decoding when every round commits a given number of tokens.

    python benchmarks/replay.py --model MODEL.gguf --threads 2 --runs 3 [--llama BUILD]

The `replay` adapter knows the text: a given number of its candidates are right in every round, the
rest of the budget is wrong. So the machinery is measured, not a draft. Nodes count the root, which
costs a row like any other: 8 nodes are a budget of 7 candidates. A tree has up to 4 children at
each level, as many as leave room for the right path. Settings whose nodes can't hold the accept
length are left out.

Only whole rounds are timed, and none near the end of a text, where the engine proposes less. Every
setting is compared with plain decoding first (tokens, logits, state, byte by byte); one that
differs ends the program with nothing printed for it. Then plain, speculative and, with --llama,
llama.cpp's plain decoding alternate; speed-ups are medians of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from engines import LlamaCpp, llama_cpp
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
from speculation import PROMPTS, check

from specla.adapters.base import Adapter, create_adapter
from specla.adapters.replay import ReplayAdapter
from specla.check import MismatchError, plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import SpeclaError
from specla.models.load import open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.stats import GenerationStats

ACCEPT = (2, 3, 5, 8)
NODES = (4, 8, 16, 22)
WIDEST = 4


@dataclass(frozen=True)
class Setting:
    """accept: tokens per round, bonus included.  nodes: root included.  branch: 1 for a chain."""

    accept: int
    nodes: int
    branch: int

    @property
    def name(self) -> str:
        """For the table."""
        return "chain" if self.branch == 1 else f"tree, {self.branch} children"


def settings(accepts: list[int], nodes: list[int]) -> list[Setting]:
    """All that fit, a chain and, where there is room beside the right path, a tree."""
    found = []
    for accept in accepts:
        for count in nodes:
            if accept > count:
                continue
            found.append(Setting(accept, count, 1))
            # full levels above, at least the right token in the last one
            full = accept - 2
            branch = min(WIDEST, count - 1, (count - 2) // full if full > 0 else WIDEST)
            if branch > 1:
                found.append(Setting(accept, count, branch))
    return found


@dataclass(frozen=True)
class Text:
    """A prompt and what the target writes after it, plainly. count: tokens that are timed."""

    prompt: list[int]
    tokens: list[int]
    count: int


def timed(
    target: Qwen35Target, adapter: Adapter, text: Text, budget: int
) -> tuple[float, GenerationStats]:
    """Seconds until the first `count` tokens are committed, and what that took."""
    request = Request(len(text.tokens), Sampler(SamplingParams()), budget=budget)
    with Session(target, adapter, text.prompt) as session:
        events: Any = session.generate(request)
        start = perf_counter()
        for _ in islice(events, text.count):
            pass
        events.close()  # commits the last round
        return perf_counter() - start, session.stats


def measure(
    target: Qwen35Target, setting: Setting, text: Text, llama: LlamaCpp | None, runs: int
) -> tuple[GenerationStats, dict[str, list[float]]]:
    """What a run did and seconds of all runs. Raises MismatchError when a byte differs."""
    last = GenerationStats()

    def adapter() -> Adapter:
        return ReplayAdapter.of(text.tokens, accept=setting.accept, branch=setting.branch)

    def speculative() -> float:
        nonlocal last
        seconds, last = timed(target, adapter(), text, setting.nodes - 1)
        return seconds

    def plain() -> float:
        return timed(target, create_adapter("none"), text, 0)[0]

    sampler = Sampler(SamplingParams())
    check(target, adapter(), text.prompt, sampler, len(text.tokens), setting.nodes - 1)
    tasks: dict[str, Callable[[], float]] = {"plain": plain, "speculative": speculative}
    if llama is not None:
        tasks["llama.cpp"] = lambda: llama_plain(llama, text)
    interleaved(tasks, 1)
    times = interleaved(tasks, runs, PAUSE if llama is not None else 0.0)
    return last, times


def llama_plain(llama: LlamaCpp, text: Text) -> float:
    """Seconds of one-token steps over the same tokens."""
    llama.reset()
    llama.prompt(text.prompt[:-1])
    return sum(llama.steps([text.prompt[-1], *text.tokens[: text.count - 1]], 1))


def table_of(
    target: Qwen35Target, text: Text, llama: LlamaCpp | None, args: argparse.Namespace
) -> None:
    """Check, measure and print every setting. Raises MismatchError."""
    columns = ["accept length", "nodes", "shape", "plain tok/s", "tok/s", "speed-up"]
    table = Table(*columns, *(["over llama.cpp's plain"] if llama is not None else []))
    for setting in settings(args.accept, args.nodes):
        count = max(args.tokens // setting.accept, 1) * setting.accept
        part = replace(text, count=count)
        stats, times = measure(target, setting, part, llama, args.runs)
        ratios = [median_ratio(times["plain"], times["speculative"])]
        if llama is not None:
            ratios.append(median_ratio(times["llama.cpp"], times["speculative"]))
        speeds = [count / statistics.median(times[name]) for name in ("plain", "speculative")]
        length, nodes = stats.mean_accept_length, stats.rows / stats.rounds
        table.row(f"{length:.2f}", f"{nodes:.1f}", setting.name, *speeds, *ratios)


def main() -> int:
    parser = argument_parser(__doc__)
    add_model_option(parser)
    add_backend_options(parser)
    parser.add_argument("--llama", type=Path, help="build folder of llama.cpp")
    parser.add_argument("--accept", type=int, nargs="+", default=ACCEPT)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    try:
        model = open_model(args.model)
        backend = numba_backend(args)
        backend.prepare(model.matrix_kinds)
        length = args.tokens + max(args.nodes) + 1
        options = TargetOptions(context=256 + length, max_nodes=max(args.nodes))
        target = model.target(backend, options)
        prompt = model.tokenizer.encode(PROMPTS[0], parse_special=False)
        plain, _ = plain_decode(target, prompt, length, Sampler(SamplingParams()))
        print(f"{args.model.name}; {machine_line(backend)}")
        print(f"{args.tokens} tokens, {args.runs} runs; bytes checked\n", flush=True)
        with ExitStack() as stack:
            llama = None
            if args.llama is not None:
                engine = llama_cpp(args.llama, args.model, args.threads, options.context)
                llama = stack.enter_context(engine)
            neighbours = Neighbours([llama.pid] if llama else [])
            table_of(target, Text(prompt, plain.tokens, args.tokens), llama, args)
            print(f"\n{neighbours.line()}")
    except MismatchError as error:
        print(f"NOT MEASURED: {error}")
        return 1
    except SpeclaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
