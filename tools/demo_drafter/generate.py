"""Let the target continue story beginnings: the text that its drafter is trained on.

Every row is a stream of ``--length`` tokens: a prompt of 16 to 48 tokens from a training story,
the target's continuation up to its ``<|endoftext|>``, the next prompt, and so on. A row has one
temperature. Writes to ``--out``:

- ``tokens.npy`` [rows, length] uint16
- ``hidden.npy`` [rows, length, n_layers, hidden] float16: outputs of all layers but the last, then
  the target's final norm (what ``target.layer_outputs`` gives)
- ``temperature.npy`` [rows] float32
- ``forced.npy`` [rows, length] bool: tokens of prompts, which the target did not choose
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from target import install_step, keep_freed_memory, layer_outputs, load_target
from tokenizers import Tokenizer
from transformers import DynamicCache, Qwen3_5ForCausalLM


class Prompts:
    """Beginnings of shuffled training stories, endlessly."""

    def __init__(self, path: Path, tok: Tokenizer, rng: np.random.Generator) -> None:
        with path.open(encoding="utf-8") as f:
            records = [json.loads(line) for line in f]
        stories = [r["text"] for r in records if r["source"] == "story"]
        self.ids = [e.ids for e in tok.encode_batch([s[:400] for s in stories])]
        self.rng, self.order = rng, []

    def next(self) -> list[int]:
        if not self.order:
            self.order = self.rng.permutation(len(self.ids)).tolist()
        length = int(self.rng.integers(16, 49))
        return self.ids[self.order.pop()][:length]


@torch.inference_mode()
def generate_batch(
    model: Qwen3_5ForCausalLM,
    prompts: Prompts,
    temperature: torch.Tensor,
    length: int,
    generator: torch.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens [rows, length], hidden states [rows, length, n_layers, hidden], forced [rows, length].

    Temperature 0 means greedy.
    """
    rows, end = len(temperature), model.config.eos_token_id
    pending = [prompts.next() for _ in range(rows)]
    greedy = temperature == 0
    scale = torch.where(greedy, 1.0, temperature)[:, None]
    tokens = np.zeros((rows, length), np.uint16)
    forced = np.ones((rows, length), bool)
    n_layers, width = model.config.num_hidden_layers, model.config.hidden_size
    hidden = np.zeros((rows, length, n_layers, width), np.float16)
    cache = DynamicCache(config=model.config)
    chosen = torch.zeros(rows, dtype=torch.long)
    for t in range(length):
        for r, prompt in enumerate(pending):
            if prompt:
                chosen[r] = prompt.pop(0)
            elif tokens[r, t - 1] == end:
                pending[r] = prompts.next()
                chosen[r] = pending[r].pop(0)
            else:
                forced[r, t] = False
        tokens[:, t] = chosen.numpy()
        out = model.model(
            input_ids=chosen[:, None],
            cache=cache,
            use_cache=True,
            output_hidden_states=True,
        )
        states = layer_outputs(out)[:, 0]
        hidden[:, t] = states.half().numpy()
        logits = model.lm_head(states[:, -1])
        sampled = torch.multinomial((logits / scale).softmax(-1), 1, generator=generator)[:, 0]
        chosen = torch.where(greedy, logits.argmax(-1), sampled)
    return tokens, hidden, forced


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--target", type=Path, required=True, help="the target's checkpoint folder")
    ap.add_argument("--data", type=Path, required=True, help="output of prepare_data.py")
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--rows", type=int, default=2048)
    ap.add_argument("--length", type=int, default=384)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--greedy", type=float, default=0.45, help="part of the rows")
    ap.add_argument("--temperature", type=float, default=0.8, help="of the other rows")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()

    torch.set_num_threads(1)
    keep_freed_memory()
    model = load_target(args.target)
    install_step(model)
    rng = np.random.default_rng(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    tok = Tokenizer.from_file(str(args.data / "tokenizer.json"))
    prompts = Prompts(args.data / "train.jsonl", tok, rng)

    args.out.mkdir(parents=True, exist_ok=True)
    n_layers, width = model.config.num_hidden_layers, model.config.hidden_size
    tokens = np.zeros((args.rows, args.length), np.uint16)
    forced = np.zeros((args.rows, args.length), bool)
    temperature = np.where(rng.random(args.rows) < args.greedy, 0, args.temperature)
    hidden = np.lib.format.open_memmap(
        args.out / "hidden.npy", "w+", np.float16, (args.rows, args.length, n_layers, width)
    )
    t0 = time.perf_counter()
    for i in range(0, args.rows, args.batch):
        part = slice(i, min(i + args.batch, args.rows))
        temps = torch.from_numpy(temperature[part]).float()
        tokens[part], hidden[part], forced[part] = generate_batch(
            model, prompts, temps, args.length, generator
        )
        done = part.stop
        # saved after every batch, so that training may begin on what is there
        np.save(args.out / "tokens.npy", tokens[:done])
        np.save(args.out / "forced.npy", forced[:done])
        np.save(args.out / "temperature.npy", temperature[:done].astype(np.float32))
        seconds = time.perf_counter() - t0
        print(f"{done} rows, {done * args.length / seconds:.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
