"""Accept lengths of the demo drafter on recorded texts of its target; adds ``metrics.json``.

Texts: continuations of the beginnings of held-out stories, greedy and at temperature 0.8, up to
``<|endoftext|>``. They are recorded once into ``--trajectories`` (with the target's hidden states
beside it, ``.npz``) and reused when the file exists. Accept length: tokens per round, the root
included (1 + accepted candidates), when a text is walked through round by round; only tokens of
the continuation count. Budgets count candidates, without the root.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from drafter import Drafter
from generate import generate_batch
from target import install_step, keep_freed_memory, load_target
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM
from trees import Block, accepted_of_chain, accepted_of_tree, chain

# what a method accepts of the text that follows a root: (block, following tokens) -> candidates
Method = Callable[[Block, list[int]], int]
TAUS = (2.0, 4.0, 6.0, float("inf"))
TOP_KS = (2, 4, 8)


@dataclass(frozen=True)
class Text:
    """A prompt and the target's continuation; ``hidden`` [tokens, n_layers, hidden] of both."""

    prompt: list[int]
    continuation: list[int]
    hidden: np.ndarray


class Beginnings:
    """Prompts of 16 to 48 tokens, in order; afterwards the first one again."""

    def __init__(self, path: Path, tok: Tokenizer, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with path.open(encoding="utf-8") as f:
            texts = [json.loads(line)["text"] for line in f][:count]
        self.prompts = [tok.encode(t).ids[: int(rng.integers(16, 49))] for t in texts]
        self.given = 0

    def next(self) -> list[int]:
        self.given += 1
        return list(self.prompts[(self.given - 1) % len(self.prompts)])


def record(model: Qwen3_5ForCausalLM, prompts: Beginnings, temperature: float) -> list[Text]:
    """128 tokens, or fewer when the story ends, after every prompt."""
    count, new = len(prompts.prompts), 128
    prompts.given = 0
    length = max(map(len, prompts.prompts)) + new
    tokens, hidden, _ = generate_batch(
        model,
        prompts,
        torch.full((count,), temperature),
        length,
        torch.Generator().manual_seed(7),
    )
    texts = []
    for row, prompt in enumerate(prompts.prompts):
        ids = tokens[row, len(prompt) : len(prompt) + new].tolist()
        end = model.config.eos_token_id
        ids = ids[: ids.index(end) + 1] if end in ids else ids
        texts.append(Text(prompt, ids, hidden[row, : len(prompt) + len(ids)]))
    return texts


def trajectories(args: argparse.Namespace, model: Qwen3_5ForCausalLM) -> dict[str, list[Text]]:
    """The recorded texts by temperature, from ``--trajectories`` or new."""
    path, states = args.trajectories, args.trajectories.with_suffix(".npz")
    if not path.exists():
        install_step(model)
        tok = Tokenizer.from_file(str(args.data / "tokenizer.json"))
        prompts = Beginnings(args.data / "heldout_stories.jsonl", tok, args.prompts, args.seed)
        fresh = {f"{t:g}": record(model, prompts, t) for t in (0.0, 0.8)}
        np.savez(
            states, **{f"{t}/{i}": x.hidden for t, xs in fresh.items() for i, x in enumerate(xs)}
        )
        plain = {
            t: [{"prompt": x.prompt, "continuation": x.continuation} for x in xs]
            for t, xs in fresh.items()
        }
        path.write_text(json.dumps({"temperatures": plain}) + "\n")
    stored = json.loads(path.read_text())["temperatures"]
    with np.load(states) as hidden:
        return {
            t: [Text(**x, hidden=hidden[f"{t}/{i}"]) for i, x in enumerate(xs)]
            for t, xs in stored.items()
        }


@torch.inference_mode()
def blocks(drafter: Drafter, texts: list[Text], bias: np.ndarray) -> Iterator[list[Block]]:
    """Per text the drafter's blocks for every root from the last prompt token on."""
    ids = drafter.c.target_layer_ids
    for text in texts:
        tokens = text.prompt + text.continuation
        at = torch.arange(len(text.prompt) - 1, len(tokens) - 1)[None]
        features = torch.from_numpy(text.hidden[:, ids].astype(np.float32)).flatten(1)[None]
        roots = torch.tensor(tokens)[at]
        h = drafter(features, roots, at)[0]
        base = (h @ drafter.embedding.T).numpy()
        yield [Block(b, bias, int(r)) for b, r in zip(base, roots[0], strict=True)]


def methods(slots: int) -> dict[str, Method]:
    """Everything that is compared, by name."""
    found: dict[str, Method] = {}

    def add_chain(name: str, rows: str, length: int) -> None:
        found[name] = lambda b, t: accepted_of_chain(chain(getattr(b, rows), b.root, length), t)

    def add_tree(name: str, rows: str, budget: int, tau: float, top_k: int) -> None:
        def method(block: Block, text: list[int]) -> int:
            return accepted_of_tree(
                getattr(block, rows), block.root, text, slots, budget, tau, top_k
            )

        found[name] = method

    for length in (3, 4, 5, slots - 1, slots):
        add_chain(f"chain of {length}, plain", "plain", length)
        add_chain(f"chain of {length}, Markov", "own", length)
    kinds = {"plain": "plain", "spine's bias": "of_spine", "own bias": "own"}
    for kind, rows in kinds.items():
        for budget in (4, 6, 8, 12, 22):
            for tau in TAUS:
                for top_k in TOP_KS:
                    name = f"tree of {budget}, {kind}, tau {tau:g}, top-k {top_k}"
                    add_tree(name, rows, budget, tau, top_k)
    return found


def walk(accepted: Callable[[int], int], total: int) -> int:
    """Rounds needed for ``total`` tokens, when round at offset n accepts ``accepted(n)``."""
    rounds, at = 0, 0
    while at < total:
        at += accepted(at) + 1
        rounds += 1
    return rounds


def accept_lengths(
    drafter: Drafter, texts: list[Text], compared: dict[str, Method]
) -> dict[str, float]:
    """Mean accept length of every method over the texts."""
    markov = drafter.markov_head
    bias = (markov.markov_w1.weight @ markov.markov_w2.weight.T).detach().numpy()
    rounds = dict.fromkeys(compared, 0)
    total = sum(len(t.continuation) for t in texts)
    for text, drafted in zip(texts, blocks(drafter, texts, bias), strict=True):
        rest = text.continuation

        def accepted(method: Method, at: int, rest: list[int], drafted: list[Block]) -> int:
            # the round's own bonus token must still belong to the text
            return min(method(drafted[at], rest[at:]), len(rest) - at - 1)

        for name, method in compared.items():
            rounds[name] += walk(partial(accepted, method, rest=rest, drafted=drafted), len(rest))
    return {name: round(total / n, 3) for name, n in rounds.items()}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--drafter", type=Path, required=True, help="checkpoint folder")
    ap.add_argument("--target", type=Path, required=True, help="the target's checkpoint folder")
    ap.add_argument("--data", type=Path, required=True, help="output of prepare_data.py")
    ap.add_argument("--trajectories", type=Path, required=True, help="JSON file, made if missing")
    ap.add_argument("--prompts", type=int, default=89, help="to record")
    ap.add_argument("--limit", type=int, help="use only the first so many texts")
    ap.add_argument("--short", action="store_true", help="only the main methods; nothing written")
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()

    torch.set_num_threads(1)
    keep_freed_memory()
    target = load_target(args.target)
    texts = trajectories(args, target)
    drafter = Drafter.load(args.drafter, target.lm_head.weight)
    compared = methods(drafter.c.block_size)
    if args.short:
        compared = {k: m for k, m in compared.items() if "tree" not in k or "tau 6, top-k 4" in k}
    result = {}
    t0 = time.perf_counter()
    for temperature, group in texts.items():
        group = group[: args.limit]
        result[temperature] = {
            "texts": len(group),
            "tokens": sum(len(t.continuation) for t in group),
            "accept_length": accept_lengths(drafter, group, compared),
        }
    if not args.short:
        path = args.drafter / "metrics.json"
        content = {"train": json.loads((args.drafter / "train.json").read_text())}
        path.write_text(json.dumps({**content, "temperature": result}, indent=2) + "\n")
    print({t: (r["texts"], r["tokens"]) for t, r in result.items()}, end=" ")
    print(f"{time.perf_counter() - t0:.0f} s")
    lengths = [r["accept_length"] for r in result.values()]
    for name in compared:
        print(f"{name:44}", *(f"{x[name]:6.3f}" for x in lengths))


if __name__ == "__main__":
    main()
