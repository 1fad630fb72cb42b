"""Measure a trained demo model and sample from it; adds ``metrics.json`` and ``samples.txt``.

The losses are over whole held-out documents, each read after ``<|endoftext|>`` and including the
``<|endoftext|>`` that closes it. Uses transformers' own implementation of the model.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from pathlib import Path

import tokenizers
import torch
import torch.nn.functional as F
from system import keep_freed_memory
from tokenizer import END_OF_TEXT
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM

PROMPTS = (
    "Once upon a time",
    "One day, Lily",
    "Tim and his mom went to the park.",
    '"Can I play with you?" asked the little dog.',
    "Question: Tom has 3 boxes with 12 apples each. He gives 5 apples to Anna. "
    "How many apples does he have left?\nAnswer:",
)


def heldout_loss(
    model: Qwen3_5ForCausalLM, tok: Tokenizer, texts: list[str], batch: int = 8
) -> dict[str, float]:
    """Loss in nats per token and bits per byte of text."""
    end = tok.token_to_id(END_OF_TEXT)
    rows = sorted(([end, *tok.encode(t).ids, end] for t in texts), key=len)
    nats, tokens = 0.0, 0
    for i in range(0, len(rows), batch):
        part = rows[i : i + batch]
        width = max(map(len, part))
        ids = torch.tensor([r + [end] * (width - len(r)) for r in part])
        labels = torch.tensor([r[1:] + [-100] * (width - len(r)) for r in part])
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        nats += F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        ).item()
        tokens += sum(len(r) - 1 for r in part)
    size = sum(len(t.encode()) for t in texts)
    return {
        "documents": len(texts),
        "tokens": tokens,
        "bytes": size,
        "nats_per_token": nats / tokens,
        "bits_per_byte": nats / math.log(2) / size,
    }


def greedy(model: Qwen3_5ForCausalLM, tok: Tokenizer, prompt: str, tokens: int) -> str:
    """The prompt and its greedy continuation."""
    ids = torch.tensor([tok.encode(prompt).ids])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False)
    return tok.decode(out[0].tolist(), skip_special_tokens=False)


@torch.inference_mode()
def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    ap.add_argument("--data", type=Path, required=True, help="output of prepare_data.py")
    ap.add_argument("--tokens", type=int, default=160, help="tokens per sample")
    ap.add_argument("--threads", type=int, default=2)
    args = ap.parse_args()

    torch.set_num_threads(args.threads)
    keep_freed_memory()
    model = Qwen3_5ForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    tok = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    heldout = {}
    for name in ("stories", "maths"):
        with (args.data / f"heldout_{name}.jsonl").open(encoding="utf-8") as f:
            heldout[name] = heldout_loss(model, tok, [json.loads(line)["text"] for line in f])
    metrics = json.loads((args.model / "train.json").read_text())
    metrics["vocabulary"] = tok.get_vocab_size()
    metrics["heldout"] = heldout
    metrics["data"] = json.loads((args.data / "data.json").read_text())
    metrics["versions"]["python"] = platform.python_version()
    metrics["versions"]["tokenizers"] = tokenizers.__version__
    (args.model / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    samples = [f"### {p!r}\n{greedy(model, tok, p, args.tokens)}\n" for p in PROMPTS]
    (args.model / "samples.txt").write_text("\n".join(samples), encoding="utf-8")
    print(json.dumps(heldout, indent=2))
    print("\n".join(samples))


if __name__ == "__main__":
    main()
