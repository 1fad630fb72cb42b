"""Muon for the matrices of a small model, in float32 (torch's own one computes in bfloat16)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist


def orthogonalise(g: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Newton-Schulz iteration of [n, rows, columns] towards the nearest orthogonal matrices."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2).contiguous() if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(-1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(-1, -2) if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised per matrix (Jordan et al., 2024), with decoupled weight decay.

    The matrices are shared out over the processes of the default group; every process gets all
    updates.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            params = group["params"]
            updates = torch.zeros(sum(p.numel() for p in params))
            slots = dict(zip(params, updates.split([p.numel() for p in params]), strict=True))
            mine = defaultdict(list)
            for p in params:
                buf = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                mine[p.shape].append(p)
            for i, (shape, same) in enumerate(sorted(mine.items())):
                same = same[(rank + i) % world :: world]
                if not same:
                    continue
                nesterov = torch.stack(
                    [p.grad.lerp(self.state[p]["momentum"], group["momentum"]) for p in same]
                )
                for p, u in zip(same, orthogonalise(nesterov), strict=True):
                    slots[p].copy_((u * max(1.0, shape[0] / shape[1]) ** 0.5).reshape(-1))
            dist.all_reduce(updates)
            for p, u in slots.items():
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(u.view_as(p), alpha=group["lr"])
