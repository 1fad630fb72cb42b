"""Sample children's stories in bulk from a small llama GGUF (float32, plain torch).

The teacher is a llama2.c-style model (for instance ``stories260K.gguf``) whose vocabulary is
inside the GGUF. Whole batches of stories are decoded together with a KV cache; stories that do
not end within the teacher's context are dropped. The output is JSON lines, ``{"text": ...}``,
plus a ``.meta.json`` with the settings and the teacher's own bits per byte, which is a lower
bound for the loss of any model trained on the text.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader
from system import keep_freed_memory

BOS, EOS = 1, 2


class Teacher:
    """A llama with grouped-query attention and interleaved rotary pairs, read from a GGUF."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        meta = {name: field.contents() for name, field in reader.fields.items()}
        self.w = {
            t.name: torch.from_numpy(np.array(t.data, dtype=np.float32)) for t in reader.tensors
        }
        self.n_layer = int(meta["llama.block_count"])
        self.n_head = int(meta["llama.attention.head_count"])
        self.n_kv = int(meta.get("llama.attention.head_count_kv", self.n_head))
        self.context = int(meta["llama.context_length"])
        self.eps = float(meta["llama.attention.layer_norm_rms_epsilon"])
        self.dim = self.w["token_embd.weight"].shape[1]
        self.head_dim = self.dim // self.n_head
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])
        self.pieces = [_piece_bytes(p) for p in meta["tokenizer.ggml.tokens"]]
        base = float(meta.get("llama.rope.freq_base", 10000.0))
        freq = base ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim)
        angle = torch.outer(torch.arange(self.context, dtype=torch.float32), freq)
        self.cos, self.sin = angle.cos(), angle.sin()

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, (self.dim,), self.w[name], self.eps)

    def _rope(self, x: torch.Tensor, pos: int) -> torch.Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[pos], self.sin[pos]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def step(self, ids: torch.Tensor, pos: int, cache: torch.Tensor) -> torch.Tensor:
        """Logits [batch, vocab] of the token after ``ids`` at ``pos``; writes the KV cache.

        ``cache`` is [layers, 2, batch, kv heads, context, head dim].
        """
        w, batch = self.w, ids.shape[0]
        x = w["token_embd.weight"][ids]
        for i in range(self.n_layer):
            p = f"blk.{i}."
            h = self._norm(x, p + "attn_norm.weight")
            q = (h @ w[p + "attn_q.weight"].T).view(batch, self.n_head, self.head_dim)
            k = (h @ w[p + "attn_k.weight"].T).view(batch, self.n_kv, self.head_dim)
            v = (h @ w[p + "attn_v.weight"].T).view(batch, self.n_kv, self.head_dim)
            cache[i, 0, :, :, pos] = self._rope(k, pos)
            cache[i, 1, :, :, pos] = v
            keys, values = cache[i, 0, :, :, : pos + 1], cache[i, 1, :, :, : pos + 1]
            q = self._rope(q, pos).view(batch, self.n_kv, -1, self.head_dim)
            mixed = F.scaled_dot_product_attention(q, keys, values).reshape(batch, self.dim)
            x = x + mixed @ w[p + "attn_output.weight"].T
            h = self._norm(x, p + "ffn_norm.weight")
            gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
            x = x + (F.silu(gate) * up) @ w[p + "ffn_down.weight"].T
        return self._norm(x, "output_norm.weight") @ self.head.T

    def decode(self, ids: list[int]) -> str:
        """Text of sentencepiece-style token ids."""
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", errors="replace").strip()


def _piece_bytes(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("\u2581", " ").encode()


def _well_formed(text: str) -> bool:
    return text[0] in "ABCDEFGHIJKLMNOPQRSTUVWXYZ\"'" and "\ufffd" not in text


@torch.inference_mode()
def sample_batch(
    teacher: Teacher, batch: int, temperature: float, rng: torch.Generator
) -> Iterator[tuple[list[int], float]]:
    """Yield ``(token ids, nats)`` of every story of one batch that ends within the context.

    ``nats`` is the negative log likelihood under the sampling distribution.
    """
    cache = torch.zeros(teacher.n_layer, 2, batch, teacher.n_kv, teacher.context, teacher.head_dim)
    ids = torch.full((batch,), BOS)
    seen = torch.empty((batch, 0), dtype=torch.long)
    nats = torch.zeros(batch)
    for pos in range(teacher.context):
        logp = (teacher.step(ids, pos, cache) / temperature).log_softmax(-1)
        ids = torch.multinomial(logp.exp(), 1, generator=rng).squeeze(1)
        nats = nats + logp.gather(1, ids[:, None]).squeeze(1).neg()
        done = ((ids == BOS) | (ids == EOS)) & nats.isfinite()
        for row in done.nonzero().squeeze(1).tolist():
            yield seen[row].tolist(), float(nats[row])
        seen = torch.cat((seen, ids[:, None]), 1)
        if bool(done.any()):
            nats = nats.masked_fill(done, -math.inf)  # marks a finished row
        finished = nats.isinf()
        ids = ids.masked_fill(finished, 3)
        if int(finished.sum()) * 5 >= len(ids):  # drop the finished rows, in place
            keep = (~finished).nonzero().squeeze(1)
            if not len(keep):
                return
            for half in cache.flatten(0, 1):
                half[: len(keep), :, : pos + 1] = half[keep, :, : pos + 1]
            cache, ids, seen, nats = cache[:, :, : len(keep)], ids[keep], seen[keep], nats[keep]


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--teacher", type=Path, required=True, help="llama GGUF, float32")
    ap.add_argument("--out", type=Path, required=True, help="JSON lines to write")
    ap.add_argument("--megabytes", type=float, default=6.0, help="text to sample, in 1e6 bytes")
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--temperature", type=float, default=0.7)
    ap.add_argument("--min-chars", type=int, default=120, help="drop shorter stories")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()

    torch.set_num_threads(args.threads)
    keep_freed_memory()
    teacher = Teacher(args.teacher)
    rng = torch.Generator().manual_seed(args.seed)
    seen: set[str] = set()
    size, started, total, short, nats = 0, 0, 0, 0, 0.0
    t0 = time.perf_counter()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", encoding="utf-8") as out:
        while size < args.megabytes * 1e6:
            started += args.batch
            for ids, story_nats in sample_batch(teacher, args.batch, args.temperature, rng):
                text = teacher.decode(ids)
                if len(text) < args.min_chars or not _well_formed(text) or text in seen:
                    short += 1
                    continue
                seen.add(text)
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                size, total, nats = size + len(text.encode()), total + 1, nats + story_nats
            seconds = time.perf_counter() - t0
            print(f"{total} stories, {size / 1e6:.2f} MB, {seconds:.0f} s", flush=True)
    meta = {
        "teacher": args.teacher.name,
        "temperature": args.temperature,
        "batch": args.batch,
        "seed": args.seed,
        "min_chars": args.min_chars,
        "stories": total,
        "bytes": size,
        "dropped_short_or_repeated": short,
        "dropped_unfinished": started - total - short,
        "teacher_bits_per_byte": nats / math.log(2) / size,
        "seconds": round(time.perf_counter() - t0, 1),
        "torch": torch.__version__,
    }
    args.out.with_suffix(".meta.json").write_text(json.dumps(meta, indent=2) + "\n")


if __name__ == "__main__":
    main()
