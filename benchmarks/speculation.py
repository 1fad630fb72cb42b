"""How much speculation brings: every setting against plain decoding, interleaved.

    python benchmarks/speculation.py [MODEL.gguf] --tokens 96 --runs 3

First each setting is checked byte by byte against plain decoding (tokens, logits, state); a
setting that fails prints no speed. Then plain and speculative runs alternate (A B A B ...), and the
table shows medians: tokens per second, the ratio to plain decoding, and the mean accept length.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from specla.adapters.base import Adapter, create_adapter
from specla.backends import create_backend
from specla.check import MismatchError, Trace, compare, plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.load import bundled_model, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

PROMPTS = (
    "Once upon a time, there was a little girl named Lily.",
    "One day, a boy named Tim went to the park with his dog.",
    "Tom and Anna wanted to bake a big cake for their mom.",
)


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    adapter: str
    budget: int
    options: tuple[tuple[str, str], ...] = ()


SETTINGS = (
    Setting("ngram", "ngram", 7),
    Setting("ngram", "ngram", 22),
    Setting("replay, no errors, chain", "replay", 7),
    Setting("replay, 30 % errors, chain", "replay", 7, (("error", "0.3"),)),
    Setting("replay, no errors, branches of 3", "replay", 22, (("branch", "3"),)),
)


def _adapter(setting: Setting, recording: Path) -> Adapter:
    options = dict(setting.options)
    if setting.adapter == "replay":
        options["path"] = str(recording)
    return create_adapter(setting.adapter, options)


def timed(
    target: Qwen35Target, adapter: Adapter, prompt: list[int], request: Request
) -> tuple[float, float]:
    """Seconds of decoding and mean accept length."""
    with Session(target, adapter, prompt) as session:
        start = perf_counter()
        for _ in session.generate(request):
            pass
        return perf_counter() - start, session.stats.mean_accept_length


def check(
    target: Qwen35Target,
    adapter: Adapter,
    prompt: list[int],
    sampler: Sampler,
    tokens: int,
    budget: int,
) -> Trace:
    """Raise MismatchError unless every byte is plain decoding's; return the plain run."""
    trace = Trace()
    with Session(target, adapter, prompt) as session:
        request = Request(tokens, sampler, budget=budget, on_logits=trace.on_logits)
        trace.tokens = [event.token for event in session.generate(request)]
        state = target.state_arrays(session.sequence)
    plain, plain_state = plain_decode(target, prompt, tokens, sampler)
    compare(trace, plain, state, plain_state, len(prompt))
    return plain


def _measure(
    target: Qwen35Target, setting: Setting, prompts: list[list[int]], args: argparse.Namespace
) -> str:
    sampler = Sampler(SamplingParams(temperature=args.temp, seed=1))
    plain_times, times, lengths = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "recording.json"
        for prompt in prompts:
            plain, _ = plain_decode(target, prompt, args.tokens, sampler)
            recording.write_text(json.dumps(plain.tokens))
            adapter = _adapter(setting, recording)
            check(target, adapter, prompt, sampler, args.tokens, setting.budget)
            for _ in range(args.runs):
                request = Request(args.tokens, sampler, budget=setting.budget)
                plain_times.append(timed(target, create_adapter("none"), prompt, request)[0])
                seconds, length = timed(target, _adapter(setting, recording), prompt, request)
                times.append(seconds)
                lengths.append(length)
    ratio = statistics.median(a / b for a, b in zip(plain_times, times, strict=True))
    return (
        f"| {setting.name} | {setting.budget} | {statistics.mean(lengths):.2f} "
        f"| {args.tokens / statistics.median(plain_times):.1f} "
        f"| {args.tokens / statistics.median(times):.1f} | {ratio:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=bundled_model())
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--temp", type=float, default=0.0)
    args = parser.parse_args()
    model = open_model(args.model)
    options = TargetOptions(context=1024, max_nodes=65)
    backend = create_backend(args.backend, threads=args.threads, model_bytes=model.weight_bytes)
    target = model.target(backend, options)
    prompts = [model.tokenizer.encode(text, parse_special=False) for text in PROMPTS]
    print(
        f"{args.model.name}, backend {target.backend.name}, {args.tokens} tokens, "
        f"{len(prompts)} prompts x {args.runs} runs, temperature {args.temp:g}; bytes checked"
    )
    print("| adapter | budget | accept length | plain tok/s | tok/s | ratio |")
    print("|---|---|---|---|---|---|")
    for setting in SETTINGS:
        try:
            print(_measure(target, setting, prompts, args), flush=True)
        except MismatchError as error:
            print(f"{setting.name}, budget {setting.budget}: NOT MEASURED, {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
