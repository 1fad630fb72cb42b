"""Where a conversion goes: its options checked before any work, its file complete or absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from specla.errors import OptionError
from specla.models.convert.atomic import replacing
from specla.models.convert.encode import OUTTYPES
from specla.models.gguf import GgufFile
from specla.models.gguf.text import quoted, shown_path
from specla.models.gguf.write import TensorToWrite, Value, write_gguf
from specla.regular_file import may_be_replaced

Progress = Callable[[int, int], None]
T = TypeVar("T")


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Request:
    """One conversion, resolved. What a kind of checkpoint has no use for keeps its default.

    tokenizer: with a tokenizer.  pre: pre-tokeniser, if it isn't recognised.  name: the model's, or
    None for the folder's.  overwrite: replace an existing file.
    mtp: (targets) with the extra prediction layer.
    target: (drafters) GGUF file of the target.  aux_heads: (drafters) file with the DSpark heads,
    "auto" to look for them, None to leave heads out.
    progress: called with (tensor bytes written, in all).
    """

    folder: Path
    output: Path
    outtype: str = "q8_0"
    tokenizer: bool = True
    pre: str | None = None
    name: str | None = None
    overwrite: bool = False
    mtp: bool = True
    target: Path | None = None
    aux_heads: Path | Literal["auto"] | None = "auto"
    progress: Progress = field(default=silent, compare=False)

    @property
    def model_name(self) -> str | None:
        """The name that was given, else the folder's, None for a folder without one."""
        return self.name or self.folder.resolve().name or None


@dataclass(frozen=True)
class Conversion:
    """What was written. kinds: GGML type -> number of tensors. notes: one line each."""

    path: Path
    n_tensors: int
    n_bytes: int
    kinds: dict[str, int]
    notes: tuple[str, ...]


def check_request(request: Request) -> None:
    """Raise OptionError, one line, for a folder, output or type that can't be."""
    folder, output = request.folder, request.output
    if request.outtype not in OUTTYPES:
        known = ", ".join(OUTTYPES)
        raise OptionError(f"output type {quoted(request.outtype)} is unknown; use {known}")
    if not folder.is_dir():
        raise OptionError(f"{shown_path(folder)}: no such folder; name a checkpoint folder")
    if output.is_dir():
        raise OptionError(f"{shown_path(output)}: is a folder; name a .gguf file")
    if not may_be_replaced(output):
        raise OptionError(f"{shown_path(output)}: is no regular file; name another output")
    if output.exists() and not request.overwrite:
        raise OptionError(f"{shown_path(output)}: exists already; remove it or allow overwriting")
    if not output.parent.is_dir():
        raise OptionError(f"{shown_path(output.parent)}: no such folder; make it first")


def write_model(
    request: Request,
    metadata: dict[str, Value],
    planned: Sequence[TensorToWrite],
    read_back: Callable[[GgufFile], T],
) -> tuple[int, T]:
    """Write the file and return (its size in bytes, what `read_back` makes of it).

    `read_back` sees the new file before it gets its name, so a bad one never gets it.
    """
    with replacing(request.output) as (file, temporary):
        size = write_gguf(file, metadata, planned, request.progress)
        file.flush()
        found = read_back(GgufFile.open(temporary))
    return size, found


def count_kinds(planned: Sequence[TensorToWrite]) -> dict[str, int]:
    """GGML type -> number of tensors."""
    names = [tensor.kind for tensor in planned]
    return {kind: names.count(kind) for kind in sorted(set(names))}
