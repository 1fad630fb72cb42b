"""A GGUF model: one file, or all the shards of a split one."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specla.errors import FileFormatError
from specla.models.gguf.metadata import Metadata
from specla.models.gguf.scan import Header, scan
from specla.models.gguf.tensor import TensorSource
from specla.models.gguf.text import fail, quoted, shown_path

_SHARD_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True)
class GgufFile:
    """An open GGUF model. Tensors are views of memory maps that live as long as they do.

    path: the file that was asked for.  parts: all files, shard order.
    version: GGUF version of the first part.  metadata: of the first part.
    tensors: name -> TensorSource, file order.
    """

    path: Path
    parts: tuple[Path, ...]
    version: int
    metadata: Metadata
    tensors: dict[str, TensorSource]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GgufFile:
        """Open a GGUF file, or every shard when `path` is one shard of a split model.

        Raises FileFormatError, one line, for anything missing, damaged or inconsistent.
        """
        asked = Path(path)
        part = _Part.open(asked)
        parts = [part] if part.shard_count == 1 else _all_shards(part)
        tensors: dict[str, TensorSource] = {}
        for part in parts:
            for tensor in part.tensors():
                if tensor.name in tensors:
                    fail(part.path, f"tensor {quoted(tensor.name)} is in another shard as well")
                tensors[tensor.name] = tensor
        first = parts[0]
        total = first.metadata.get_int("split.tensors.count", None)
        if len(parts) > 1 and total is not None and total != len(tensors):
            found = f"the shards hold {len(tensors)} tensors"
            fail(first.path, f"{found}, split.tensors.count says {total}; get the shards again")
        files = tuple(part.path for part in parts)
        return cls(asked, files, first.header.version, first.metadata, tensors)

    @property
    def architecture(self) -> str:
        """general.architecture, such as "qwen35". Raises FileFormatError when absent."""
        return self.metadata.get_str("general.architecture")

    @property
    def n_bytes(self) -> int:
        """Size of all parts on disk."""
        return sum(part.stat().st_size for part in self.parts)

    def tensor(self, name: str) -> TensorSource:
        """The tensor of that name. Raises FileFormatError when it isn't there."""
        found = self.tensors.get(name)
        if found is None:
            fail(self.path, f"tensor {name} is missing; the file is incomplete or of another kind")
        return found


@dataclass(frozen=True)
class _Part:
    path: Path
    data: mmap.mmap
    header: Header
    metadata: Metadata
    shard_count: int

    @classmethod
    def open(cls, path: Path) -> _Part:
        data = _map(path)
        header = scan(path, data)
        metadata = Metadata(path, data, header.values)
        count = metadata.get_int("split.count", None, low=0, high=99_999)
        named = _SHARD_NAME.fullmatch(path.name)
        if count is None and named and int(named["count"]) > 1:
            fail(path, "is named as a shard of a split model, but holds no split.count")
        return cls(path, data, header, metadata, max(count or 1, 1))

    def tensors(self) -> Iterator[TensorSource]:
        whole = np.frombuffer(self.data, dtype=np.uint8)
        for info in self.header.tensors.values():
            raw = whole[info.start : info.stop]
            yield TensorSource(info.name, info.kind, info.shape, raw, self.path)


def _map(path: Path) -> mmap.mmap:
    """Map a regular file read-only. The map outlives the descriptor."""
    try:
        # O_NONBLOCK: opening a pipe must not wait for a writer
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileFormatError(f"{shown_path(path)}: can't open the model file: {reason}") from None
    try:
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            fail(path, "is a folder; name the .gguf file in it")
        if not stat.S_ISREG(info.st_mode):
            fail(path, "is not a regular file; name a .gguf file")
        if info.st_size == 0:
            fail(path, "is empty; get the file again")
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        fail(path, f"can't map the model file: {error.strerror}")
    finally:
        os.close(descriptor)


_BINARY: int = getattr(os, "O_BINARY", 0)


def _all_shards(part: _Part) -> list[_Part]:
    named = _SHARD_NAME.fullmatch(part.path.name)
    count = part.shard_count
    if named is None or int(named["count"]) != count:
        wanted = f"NAME-00001-of-{count:05d}.gguf"
        fail(part.path, f"is one shard of {count}, but not named {wanted}; restore its name")
    # names first: a file that claims 99,999 shards fails at the first one missing
    paths = [
        part.path.with_name(f"{named['stem']}-{number:05d}-of-{count:05d}.gguf")
        for number in range(1, count + 1)
    ]
    for path in paths:
        if not path.exists():
            fail(path, f"shard is missing; all {count} shards must lie in one folder")
    parts = []
    for number, path in enumerate(paths):
        shard = part if path == part.path else _Part.open(path)
        if shard.shard_count != count:
            fail(path, f"split.count is {shard.shard_count}, the other shards say {count}")
        if (found := shard.metadata.get_int("split.no")) != number:
            fail(path, f"split.no is {found}, the name says {number}")
        parts.append(shard)
    return parts
