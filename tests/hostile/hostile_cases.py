"""Hostile inputs that once broke the contract of docs/hostile-input.md, or would have.

Small ones are files of the `files` folder; the others are made here, since they are large, or are
a sound file but for a field. Run as a script this is one process that tries inputs under limits.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.fuzz_readers.layout import Layout

MUTATIONS, BUNDLED = 60, 8
"""Mutations for each harness, and of each bundled file."""
LARGE, FOR_VOCABULARY = 1 << 19, 64 << 20
"""A file of so many bytes may hold a vocabulary, for which there may be so many bytes more."""
FILES = Path(__file__).parent / "files"
STRING, ARRAY, U32, U64, F32, F64 = 8, 9, 4, 10, 6, 12
ALL_BYTES_KEY = b"tokenizer.ggml.tokens"


def _with(seed: str, *changes: tuple[str, int, bytes]) -> bytes:
    """A seed with other values: (key, type, raw value)."""
    from tools.fuzz_readers.layout import Key

    layout = _layout(seed)
    for name, kind, raw in changes:
        layout.keys = [key for key in layout.keys if key.name != name.encode()]
        layout.keys.append(Key(name.encode(), kind, kind, [raw]))
    return layout.build()


def _layout(seed: str) -> Layout:
    from tools.fuzz_readers import layout, seeds

    found = layout.parse(getattr(seeds, seed)())
    assert found is not None
    return found


def _tokens(extra: list[bytes], kind: int) -> bytes:
    """A vocabulary of all bytes and `extra` tokens of a type."""
    layout = _layout("vocabulary")
    tokens, kinds = layout.key(ALL_BYTES_KEY), layout.key(b"tokenizer.ggml.token_type")
    assert tokens is not None and kinds is not None
    tokens.values += extra
    kinds.values += [struct.pack("<i", kind)] * len(extra)
    return layout.build()


def _yarn(name: str, value: float) -> bytes:
    prefix = "dflash.rope.scaling."
    return _with(
        "drafter",
        (f"{prefix}type", STRING, b"yarn"),
        (f"{prefix}factor", F32, struct.pack("<f", 4.0)),
        (f"{prefix}original_context_length", U32, struct.pack("<I", 64)),
        (f"{prefix}{name}", F64, struct.pack("<d", value)),
    )


def _wide_convolution() -> bytes:
    """A table of 64 taps in blocks of four bits, in which a few bytes make many numbers."""
    layout = _layout("target")
    for tensor in layout.tensors:
        if tensor.name == b"blk.0.ssm_conv1d.weight":
            tensor.dims, tensor.type = [64, 96], 2
            tensor.offset = len(layout.data)
    layout.data += bytes(96 * 64 // 32 * 18)
    key = layout.key(b"qwen35.ssm.conv_kernel")
    assert key is not None
    key.values = [struct.pack("<I", 64)]
    return layout.build()


def _many_strings() -> bytes:
    body = struct.pack("<Q", 0) * 200_000
    key = struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", ARRAY, STRING, 200_000)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + body


MADE: dict[str, Callable[[], bytes]] = {
    "100,000 special tokens": lambda: _tokens([b"!%x" % i for i in range(100_000)], 3),
    "a special token of 2 MB": lambda: _tokens([b"ab" * 1_000_000], 3),
    "special tokens of all lengths": lambda: _tokens([b"a" * i for i in range(2, 3000)], 4),
    "a pre-tokenizer's name of 3 MB": lambda: _with(
        "vocabulary", ("tokenizer.ggml.pre", STRING, b"q" * 3_000_000)
    ),
    "200,000 empty strings": _many_strings,
    "a wide convolution in blocks": _wide_convolution,
    "YaRN over nothing": lambda: _yarn("yarn_beta_fast", 5e-324),
    "YaRN over all": lambda: _yarn("yarn_beta_slow", 1e308),
    "a YaRN factor of attention": lambda: _yarn("attn_factor", 1e308),
    "a drafter's base near zero": lambda: _with(
        "drafter", ("dflash.rope.freq_base", F64, struct.pack("<d", 1e-300))
    ),
    "a linear factor near zero": lambda: _with(
        "drafter", ("dflash.rope.scaling.factor", F64, struct.pack("<d", 1e-300))
    ),
    "a target's base near zero": lambda: _with(
        "target", ("qwen35.rope.freq_base", F64, struct.pack("<d", 1e-300))
    ),
    "an epsilon of 1e300": lambda: _with(
        "target",
        ("qwen35.attention.layer_norm_rms_epsilon", F64, struct.pack("<d", 1e300)),
    ),
    "a drafter of 2**40 layers": lambda: _with(
        "drafter", ("dflash.block_count", U64, struct.pack("<Q", 1 << 40))
    ),
}
"""Name -> the bytes of a file."""


def inputs(group: str) -> Iterator[tuple[str, Callable[[], bytes], str]]:
    """(name, bytes, harness) of what a process is to try."""
    from tools.fuzz_readers.harness import HARNESSES

    if group == "files":
        for path in sorted(FILES.iterdir()):
            harness = "template" if path.suffix == ".jinja" else "everything"
            yield path.name, path.read_bytes, harness
        for name, made in MADE.items():
            yield name, made, "everything"
        return
    for name, harness in HARNESSES.items():
        random, seeds = Random(name), list(harness.seeds())
        for index in range(MUTATIONS):
            data = random.choice(seeds)
            for _ in range(random.choice((1, 2, 4))):
                data = harness.mutate(data, random)
            yield f"{name} {index}", lambda data=data: data, name  # type: ignore[misc]
    yield from _mutated_bundled(BUNDLED)


def _mutated_bundled(count: int) -> Iterator[tuple[str, Callable[[], bytes], str]]:
    from specla.models.load import bundled_drafter, bundled_model
    from tools.fuzz_readers.mutate import mutate_gguf

    for path in (bundled_model(), bundled_drafter()):
        whole, random = path.read_bytes(), Random(path.name)
        for index in range(count):
            data = mutate_gguf(whole, random)
            yield f"{path.name} {index}", lambda data=data: data, "opened"  # type: ignore[misc]


def _run(harness: str) -> Callable[[bytes], object]:
    from tools.fuzz_readers import files
    from tools.fuzz_readers.harness import HARNESSES
    from tools.fuzz_readers.scratch_file import as_file

    def everything(data: bytes) -> None:
        with as_file(data) as path:
            files.everything(path)

    def opened(data: bytes) -> None:
        with as_file(data) as path:
            files.inspect_file(path)
            files.open_any(path)

    own: dict[str, Any] = {"everything": everything, "opened": opened}
    return own[harness] if harness in own else HARNESSES[harness].run


def main(group: str, space: int) -> None:
    """Try inputs and print a line for each: its name before, what came of it after."""
    from tools.fuzz_readers.contract import CONSTANT, check
    from tools.fuzz_readers.harness import HARNESSES

    for harness in HARNESSES.values():  # imports and caches are the program's, not the inputs'
        check(harness.run, harness.seeds()[0], memory=False)
    limit_memory(space)
    for name, made, way in inputs(group):
        print(json.dumps(name), flush=True)
        data = made()
        large = len(data) > LARGE
        run = _run("opened" if large else way)
        constant = CONSTANT + (FOR_VOCABULARY if large else 0)
        # counted memory makes a template ten times slower; the process's limit is enough for them
        counted = way != "template"
        found = check(run, data, memory=counted, constant=constant, limit=math.inf)
        broken = "" if isinstance(found, str) else f"{found.kind}: {found.place}: {found.detail}"
        print(json.dumps([name, broken]), flush=True)


def limit_memory(space: int) -> None:
    """No more address space than `space` beyond what the process has now."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + space, resource.RLIM_INFINITY)
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(sys.argv[1], int(sys.argv[2]))
