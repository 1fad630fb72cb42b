"""Train the demo drafter on the text of its target, from what ``generate.py`` wrote.

Per step: some rows of text, in each of them some random anchors (roots) whose blocks share one
pass over the context. The loss of a slot is the cross-entropy between the Markov-corrected
prediction (corrected for the text's own previous token) and the distribution that the text was
drawn from: the target's softmax at the row's temperature, or its choice where the row is greedy.
Later slots count less, as they matter only where the earlier ones were right.

Learning rates rise in a short warm-up, stay constant and fall linearly to zero over the last part
of the run; until the fall begins a run may be stopped and resumed with another number of steps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from drafter import Drafter, DrafterConfig
from target import keep_freed_memory, load_target

from muon import Muon  # isort: skip; found through target


class Rows:
    """Random rows and anchors of generated text.

    Every epoch walks once through all sampled rows and through as many of the greedy rows, picked
    anew, as make up ``greedy`` of all.
    """

    def __init__(
        self, folders: list[Path], layer_ids: tuple[int, ...], greedy: float, seed: int
    ) -> None:
        self.parts = []
        for folder in folders:
            hidden = np.load(folder / "hidden.npy", mmap_mode="r")
            rest = (np.load(folder / f"{n}.npy") for n in ("tokens", "forced", "temperature"))
            self.parts.append((hidden, *rest))
        rows = [(p, r) for p, part in enumerate(self.parts) for r in range(len(part[1]))]
        self.sampled = [(p, r) for p, r in rows if self.parts[p][3][r] > 0]
        self.greedy = [(p, r) for p, r in rows if self.parts[p][3][r] == 0]
        self.n_greedy = min(round(len(self.sampled) * greedy / (1 - greedy)), len(self.greedy))
        self.layers, self.seed = [*layer_ids, -1], seed

    def batches(
        self, rows: int, anchors: int, slots: int, skip: int = 0
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Endless batches of ``rows`` x ``anchors`` blocks, without the first ``skip``."""
        epoch = 0
        while True:
            rng = np.random.default_rng([self.seed, epoch])
            some = rng.choice(len(self.greedy), self.n_greedy, replace=False)
            index = [*self.sampled, *(self.greedy[i] for i in some)]
            order = rng.permutation(len(index))
            for i in range(0, len(order) - rows + 1, rows):
                part = [index[j] for j in order[i : i + rows]]
                at = [self._anchors(p, r, anchors, rng) for p, r in part]
                if skip:
                    skip -= 1
                    continue
                picked = [self._row(p, r, a, slots) for (p, r), a in zip(part, at, strict=True)]
                yield {k: torch.from_numpy(np.stack([p[k] for p in picked])) for k in picked[0]}
            epoch += 1

    def _anchors(self, part: int, row: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """Random positions whose next token is the target's own, in order."""
        candidates = np.flatnonzero(~self.parts[part][2][row][2:]) + 1
        return np.sort(rng.choice(candidates, count, replace=len(candidates) < count))

    def _row(self, part: int, row: int, at: np.ndarray, slots: int) -> dict[str, np.ndarray]:
        hidden, tokens, forced, temperature = self.parts[part]
        ids, free = tokens[row].astype(np.int64), ~forced[row]
        states = hidden[row][:, self.layers].astype(np.float32)
        ahead = at[:, None] + np.arange(slots + 1)
        inside = ahead < len(ids)
        ahead = np.minimum(ahead, len(ids) - 1)
        valid = np.logical_and.accumulate((free[ahead] & inside)[:, 1:], 1)
        return {
            "features": states[:, :-1].reshape(len(ids), -1),  # [length, features]
            "final": states[:, -1],  # [length, hidden], after the target's final norm
            "anchors": at,  # [anchors]
            "text": ids[ahead],  # [anchors, slots + 1], root first
            "valid": valid,  # [anchors, slots], False from the first token not the target's
            "temperature": temperature[row],
        }


def soft_labels(batch: dict[str, torch.Tensor], head: torch.Tensor) -> torch.Tensor:
    """[w, anchors, slots, vocab]: what the text at every slot was drawn from."""
    w, a, s = batch["valid"].shape
    temperature = batch["temperature"].clamp(min=0.05)[:, None, None]
    probs = (batch["final"] @ head.T / temperature).softmax(-1)
    greedy = batch["temperature"] == 0
    at = (batch["anchors"][..., None] + torch.arange(s)).clamp(max=probs.shape[1] - 1)
    labels = probs.gather(1, at.view(w, -1, 1).expand(-1, -1, probs.shape[-1])).view(w, a, s, -1)
    labels[greedy] = F.one_hot(batch["text"][greedy][..., 1:], labels.shape[-1]).to(labels)
    return labels


def losses(
    model: Drafter, batch: dict[str, torch.Tensor], args: argparse.Namespace
) -> dict[str, torch.Tensor]:
    """Weighted means over the valid slots: corrected, uncorrected, confidence, and the sum."""
    text = batch["text"]
    h = model(batch["features"], text[..., 0], batch["anchors"])
    keep = batch["valid"]
    decay = args.decay ** torch.arange(keep.shape[-1], dtype=torch.float32)
    weight = decay.expand(keep.shape)[keep]
    weight = weight / weight.sum()
    h, prev, actual = h[keep], text[..., :-1][keep], text[..., 1:][keep]
    soft = args.labels == "soft"
    labels = soft_labels(batch, model.embedding)[keep] if soft else actual
    base = h @ model.embedding.T
    row = model.markov_head.markov_w1(prev)
    corrected = base + model.markov_head.markov_w2(row)
    out = {
        "corrected": (F.cross_entropy(corrected, labels, reduction="none") * weight).sum(),
        "plain": (F.cross_entropy(base, labels, reduction="none") * weight).sum(),
    }
    with torch.no_grad():
        best = corrected.argmax(-1)
        right = labels.gather(1, best[:, None])[:, 0] if soft else (best == actual).float()
    sure = model.confidence_head.proj(torch.cat((h, row), -1).detach())[:, 0]
    out["confidence"] = F.binary_cross_entropy_with_logits(sure, right)
    out["accuracy"] = (right * weight).sum()
    out["sum"] = out["corrected"] + args.plain_weight * out["plain"] + 0.1 * out["confidence"]
    return out


def make_optimizers(model: Drafter, args: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the backbone, AdamW for norms and heads."""
    matrices, rest = [], []
    for name, p in model.named_parameters():
        head = name.startswith(("markov_head", "confidence_head"))
        (matrices if p.ndim == 2 and not head else rest).append(p)
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=args.muon_lr, weight_decay=args.weight_decay),
        torch.optim.AdamW(rest, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]
    for opt in optimizers:
        for group in opt.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--target", type=Path, required=True, help="the target's checkpoint folder")
    ap.add_argument("--text", type=Path, nargs="+", required=True, help="outputs of generate.py")
    ap.add_argument("--out", type=Path, required=True, help="checkpoint folder")
    ap.add_argument("--steps", type=int, required=True)
    ap.add_argument("--stop-after", type=int, help="stop early at this step")
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--rows", type=int, default=16, help="rows of text per step")
    ap.add_argument("--anchors", type=int, default=16, help="blocks per row")
    ap.add_argument("--greedy", type=float, default=0.2, help="part of the rows; below 1")
    ap.add_argument("--layer-ids", type=int, nargs="+", default=[1, 3, 5, 6])
    ap.add_argument("--layers", type=int, default=1)
    ap.add_argument("--ffn", type=int, default=640)
    ap.add_argument("--kv-heads", type=int, default=2)
    ap.add_argument("--rank", type=int, default=64, help="of the Markov head")
    ap.add_argument("--bidirectional", action="store_true", help="slots see later slots")
    ap.add_argument("--labels", choices=("soft", "hard"), default="soft")
    ap.add_argument("--decay", type=float, default=0.8, help="weight of a slot to the next")
    ap.add_argument("--plain-weight", type=float, default=0.1, help="loss without correction")
    ap.add_argument("--muon-lr", type=float, default=0.03)
    ap.add_argument("--lr", type=float, default=5e-3, help="AdamW learning rate")
    ap.add_argument("--weight-decay", type=float, default=0.02)
    ap.add_argument("--warmup", type=int, default=40, help="steps")
    ap.add_argument("--cooldown", type=float, default=0.7, help="last part, falling rates")
    ap.add_argument("--clip", type=float, default=1.0, help="gradient norm")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--log-every", type=int, default=20)
    ap.add_argument("--checkpoint-minutes", type=float, default=5.0)
    return ap.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    target = load_target(args.target)
    config = DrafterConfig(
        target_layer_ids=tuple(args.layer_ids),
        num_hidden_layers=args.layers,
        intermediate_size=args.ffn,
        num_key_value_heads=args.kv_heads,
        markov_rank=args.rank,
        causal=not args.bidirectional,
    )
    model = Drafter(config, target.lm_head.weight)
    model.initialise(args.seed)
    optimizers = make_optimizers(model, args)
    rows = Rows(args.text, config.target_layer_ids, args.greedy, args.seed)
    first, seconds_before = 0, 0.0
    if args.resume:
        state = torch.load(args.out / "resume.pt", weights_only=True)
        first, seconds_before = state["step"], state["seconds"]
        model.load_state_dict(state["model"])
        for opt, saved in zip(optimizers, state["optimizers"], strict=True):
            opt.load_state_dict(saved)

    batches = rows.batches(args.rows, args.anchors, config.block_size, skip=first)

    def checkpoint(step: int) -> None:
        seconds = seconds_before + time.perf_counter() - t0
        model.save(args.out)
        settings = {k: v for k, v in vars(args).items() if not isinstance(v, (Path, list))}
        record = {
            "steps": step,
            "blocks": step * args.rows * args.anchors,
            "seconds": round(seconds, 1),
            "parameters": sum(p.numel() for p in model.parameters()),
            "layer_ids": list(config.target_layer_ids),
            "settings": {**settings, "text": [p.name for p in args.text]},
            "train": shown,
        }
        (args.out / "train.json").write_text(json.dumps(record, indent=2) + "\n")
        state = {
            "step": step,
            "seconds": seconds,
            "model": model.state_dict(),
            "optimizers": [opt.state_dict() for opt in optimizers],
        }
        torch.save(state, args.out / "resume.pt")
        print(f"checkpoint at step {step}", flush=True)

    args.out.mkdir(parents=True, exist_ok=True)
    last = min(args.steps, args.stop_after or args.steps)
    recent: list[dict[str, float]] = []
    shown: dict[str, float] = {}
    t0 = saved_at = time.perf_counter()
    for step in range(first, last):
        scale = min((step + 1) / args.warmup, (args.steps - step) / (args.steps * args.cooldown), 1)
        for opt in optimizers:
            for group in opt.param_groups:
                group["lr"] = group["peak_lr"] * scale
        out = losses(model, next(batches), args)
        out["sum"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for opt in optimizers:
            opt.step()
            opt.zero_grad(set_to_none=True)
        recent.append({k: v.item() for k, v in out.items()})
        now = time.perf_counter()
        if (step + 1) % args.log_every == 0:
            shown = {k: round(sum(r[k] for r in recent) / len(recent), 4) for k in recent[0]}
            speed = (step + 1 - first) / (now - t0)
            print(f"step {step + 1}/{args.steps} {shown} {speed:.3f} steps/s", flush=True)
            recent = []
        if now - saved_at > args.checkpoint_minutes * 60 and step + 1 < last:
            checkpoint(step + 1)
            saved_at = now
    checkpoint(last)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
