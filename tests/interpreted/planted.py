"""Bugs planted in kernels: a module of the GPU backend with some of its text replaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from support.changed_kernels import changed_backend

from specla.backends.triton.backend import TritonBackend


@dataclass(frozen=True)
class Bug:
    """kernel: whose case must find it.  module, family: where its methods are.  old, new: text."""

    name: str
    kernel: str
    module: str
    family: str
    old: str
    new: str


PLANTED = (
    Bug(
        "gather reads the bank that it writes",
        *("gather", "gather", "Gather"),
        "source = ((slot * 2 + bank) * layers",
        "source = ((slot * 2 + 1 - bank) * layers",
    ),
    Bug(
        "a factor too few is folded",
        *("fold_state", "gdn", "DeltaRule"),
        "for i in range(count):",
        "for i in range(count - 1):",
    ),
    Bug(
        "pending factors come from the other bank",
        *("gdn_verify", "gdn", "DeltaRule"),
        "pending_entry = ((slot * 2 + bank) * layers",
        "pending_entry = ((slot * 2 + 1 - bank) * layers",
    ),
    Bug(
        "a branch starts where its parent's chain ends",
        *("gdn_verify", "gdn", "DeltaRule"),
        "row = first_row + tl.load(path + i) - base",
        "row = tl.load(chain_rows + start) - own + i",
    ),
    Bug(
        "a window is moved on by one place too many",
        *("fold_window", "conv", "Convolution"),
        "at = i + count\n",
        "at = i + count + 1\n",
    ),
    Bug(
        "a sum along the whole axis",
        *("rms_norm", "norms", "Norms"),
        "return halves(tl.reshape(total, [1, 2**LOG]), LOG, 1)",
        "return tl.zeros([1], tl.float32) + tl.sum(total, 0)",
    ),
    Bug(
        "of equal logits the last one",
        *("argmax", "choices", "Choices"),
        "at = tl.min(tl.where(clean == top, i, 2147483647), 0)",
        "at = tl.max(tl.where(clean == top, i, -1), 0)",
    ),
    Bug(
        "values are rounded down",
        *("quantise", "quantise", "Quantiser"),
        "whole = ((bounded + 12582912.0) - 12582912.0).to(tl.int32)",
        "whole = bounded.to(tl.int32)",
    ),
    Bug(
        "keys of all sequences go to the first one's pages",
        *("kv_write", "attention", "Attention"),
        "slot = tl.load(slots + tl.load(sequence + row))\n    page = tl.load(table",
        "slot = tl.load(slots)\n    page = tl.load(table",
    ),
)


def planted(bug: Bug, folder: Path) -> TritonBackend:
    """The backend with a bug. folder: for the changed source."""
    return changed_backend(folder, bug.module, bug.family, bug.old, bug.new)
