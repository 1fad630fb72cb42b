"""Train the demo model from random weights on one CPU, for a fixed number of steps.

Reads what ``prepare_data.py`` wrote. Every process computes its share of each batch with one
thread and the gradients are averaged; that is faster on a few cores than one process with as many
threads, above all on a machine that is not idle. Matrices are trained by Muon (or AdamW, for
comparison), all other parameters by AdamW; the learning rates rise during a short warm-up, stay
constant and fall linearly to zero over the last part of the run.

The checkpoint directory is refreshed every few minutes, so that an interrupted run leaves a usable
model, and ``--resume`` continues it exactly. Until the fall begins, a run may be resumed with
another number of steps and gives what that number would have given from the start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import gated_delta
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
import transformers
from model import build_config, build_model
from muon import Muon
from system import keep_freed_memory


class Windows:
    """Training windows of ``length`` + 1 tokens over shuffled, packed documents.

    Every epoch shuffles the documents and walks through all of them. With probability one half a
    window is moved back to the start of the document that it would begin in.
    """

    def __init__(self, path: Path, length: int, seed: int) -> None:
        with np.load(path) as data:
            ids, starts = data["ids"], data["starts"]
        self.documents = np.split(ids.astype(np.int64), starts[1:])
        self.length, self.seed = length, seed

    def epoch(self, number: int) -> np.ndarray:
        """All windows [n, length + 1] of one epoch, in random order."""
        rng = np.random.default_rng([self.seed, number])
        order = [self.documents[i] for i in rng.permutation(len(self.documents))]
        stream = np.concatenate(order)
        starts = np.cumsum([0] + [len(d) for d in order])
        begin, begins = 0, []
        while begin + self.length + 1 <= len(stream):
            start = int(starts[np.searchsorted(starts, begin, side="right") - 1])
            if rng.random() < 0.5 and begin - start < self.length:
                begin = start
            begins.append(begin)
            begin += self.length
        begins = rng.permutation(np.asarray(begins))
        return stream[begins[:, None] + np.arange(self.length + 1)]

    def batches(self, batch: int) -> Iterator[torch.Tensor]:
        """Endless batches; the part of an epoch that does not fill a batch is skipped."""
        number = 0
        while True:
            windows = torch.from_numpy(self.epoch(number))
            yield from windows[: len(windows) // batch * batch].split(batch)
            number += 1


def make_optimizers(
    model: torch.nn.Module, args: argparse.Namespace
) -> list[torch.optim.Optimizer]:
    """Muon or AdamW for the matrices, AdamW for the rest (decay only for the embedding)."""
    matrices, embedding, rest = [], [], []
    for name, p in model.named_parameters():
        if "embed_tokens" in name:
            embedding.append(p)
        elif p.ndim == 2 and min(p.shape) >= 32:
            matrices.append(p)
        else:
            rest.append(p)
    groups = [
        {"params": embedding, "weight_decay": args.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    optimizers: list[torch.optim.Optimizer] = []
    if args.optimizer == "muon":
        optimizers.append(Muon(matrices, lr=args.muon_lr, weight_decay=args.weight_decay))
    else:
        groups.append({"params": matrices, "weight_decay": args.weight_decay})
    optimizers.append(torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=True))
    for opt in optimizers:
        for group in opt.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def save_checkpoint(
    model: transformers.PreTrainedModel, state: dict, record: dict, data: Path, out: Path
) -> None:
    """Write everything beside the checkpoint first, then move it into place file by file."""
    fresh = out / "fresh"
    fresh.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(fresh)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(data / name, fresh / name)
    torch.save(state, fresh / "resume.pt")
    (fresh / "train.json").write_text(json.dumps(record, indent=2) + "\n")
    for path in sorted(fresh.iterdir()):
        os.replace(path, out / path.name)
    fresh.rmdir()


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--data", type=Path, required=True, help="output of prepare_data.py")
    ap.add_argument("--out", type=Path, required=True, help="checkpoint directory")
    ap.add_argument("--steps", type=int, required=True)
    ap.add_argument("--stop-after", type=int, help="stop early at this step (speed probes)")
    ap.add_argument("--batch", type=int, default=8, help="windows per step")
    ap.add_argument("--length", type=int, default=512, help="tokens per window")
    ap.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    ap.add_argument("--muon-lr", type=float, default=0.02)
    ap.add_argument("--lr", type=float, default=3e-3, help="AdamW learning rate")
    ap.add_argument("--weight-decay", type=float, default=0.1)
    ap.add_argument("--warmup", type=int, default=40, help="steps")
    ap.add_argument("--cooldown", type=float, default=0.5, help="last part, falling rates")
    ap.add_argument("--clip", type=float, default=1.0, help="gradient norm")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--processes", type=int, default=2, help="must divide the batch")
    ap.add_argument("--port", type=int, default=29511, help="local port that they meet at")
    ap.add_argument("--log-every", type=int, default=20)
    ap.add_argument("--checkpoint-minutes", type=float, default=10.0)
    ap.add_argument("--resume", action="store_true")
    return ap.parse_args()


def average_gradients(model: torch.nn.Module) -> None:
    """Mean of the gradients of all processes, in place."""
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, mean in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        g.copy_(mean.view_as(g))


def worker(rank: int, args: argparse.Namespace) -> None:
    """The training loop of one process; the first one logs and writes checkpoints."""
    torch.set_num_threads(1)
    keep_freed_memory()
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{args.port}",
        rank=rank,
        world_size=args.processes,
    )
    gated_delta.install()
    info = json.loads((args.data / "data.json").read_text())
    model = build_model(build_config(info["vocabulary"], info["vocabulary"] - 1), args.seed)
    optimizers = make_optimizers(model, args)
    first, seconds_before = 0, 0.0
    if args.resume:
        state = torch.load(args.out / "resume.pt", weights_only=True)
        first, seconds_before = state["step"], state["seconds"]
        model.load_state_dict(state["model"])
        for opt, saved in zip(optimizers, state["optimizers"], strict=True):
            opt.load_state_dict(saved)
    batches = Windows(args.data / "train.npz", args.length, args.seed).batches(args.batch)
    for _ in range(first):
        next(batches)

    def checkpoint(step: int, train_loss: float) -> None:
        seconds = seconds_before + time.perf_counter() - t0
        record = {
            "steps": step,
            "planned_steps": args.steps,
            "tokens": step * args.batch * args.length,
            "seconds": round(seconds, 1),
            "train_loss": train_loss,
            "parameters": sum(p.numel() for p in model.parameters()),
            "settings": {
                k: v for k, v in vars(args).items() if not isinstance(v, Path) and k != "resume"
            },
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }
        state = {
            "step": step,
            "seconds": seconds,
            "model": model.state_dict(),
            "optimizers": [opt.state_dict() for opt in optimizers],
        }
        save_checkpoint(model, state, record, args.data, args.out)
        print(f"checkpoint at step {step}", flush=True)

    last = min(args.steps, args.stop_after or args.steps)
    recent: list[float] = []
    t0 = saved_at = logged_at = time.perf_counter()
    for step in range(first, last):
        scale = min((step + 1) / args.warmup, (args.steps - step) / (args.steps * args.cooldown), 1)
        for opt in optimizers:
            for group in opt.param_groups:
                group["lr"] = group["peak_lr"] * scale
        window = next(batches).chunk(args.processes)[rank]
        hidden = model.model(input_ids=window[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden).flatten(0, 1)
        loss = F.cross_entropy(logits, window[:, 1:].flatten())
        loss.backward()
        average_gradients(model)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for opt in optimizers:
            opt.step()
            opt.zero_grad(set_to_none=True)
        recent = [*recent[-99:], loss.item()]
        if rank:
            continue
        now = time.perf_counter()
        if (step + 1) % args.log_every == 0:
            mean = sum(recent[-args.log_every :]) / args.log_every
            speed = args.log_every * args.batch * args.length / (now - logged_at)
            print(
                f"step {step + 1}/{args.steps} loss {mean:.4f} grad {float(norm):.2f} "
                f"{speed:.0f} tokens/s {now - t0 + seconds_before:.0f} s",
                flush=True,
            )
            logged_at = now
        if now - saved_at > args.checkpoint_minutes * 60 and step + 1 < last:
            checkpoint(step + 1, sum(recent) / len(recent))
            saved_at = now
    if rank == 0:
        checkpoint(last, sum(recent) / len(recent))
    dist.destroy_process_group()


def main() -> None:
    args = parse_args()
    if args.batch % args.processes:
        raise SystemExit("--processes must divide --batch")
    mp.spawn(worker, (args,), nprocs=args.processes)


if __name__ == "__main__":
    main()
