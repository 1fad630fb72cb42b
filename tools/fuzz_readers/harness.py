"""The harnesses: what they run, what they begin with, how an input is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tools.fuzz_readers import files, proposals, seeds, templates
from tools.fuzz_readers.mutate import mutate_bytes, mutate_gguf, mutate_text
from tools.fuzz_readers.scratch_file import as_file


@dataclass(frozen=True)
class Harness:
    """run: raises what it raises.  seeds: called once.  mutate: another input from an input.
    instrument: modules whose branches guide the fuzzer."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    instrument: tuple[str, ...] = ("specla",)


def _of_file(
    way: Callable[[Path], object], focus: Sequence[str], *made: Callable[[], bytes]
) -> Harness:
    def run(data: bytes) -> None:
        with as_file(data) as path:
            way(path)

    return Harness(
        run,
        lambda: [seed() for seed in made],
        lambda data, random: mutate_gguf(data, random, focus),
    )


def _of_text(
    run: Callable[[str], object], texts: Sequence[str], snippets: Sequence[str], *instrument: str
) -> Harness:
    def mutate(data: bytes, random: Random) -> bytes:
        text = mutate_text(data.decode("utf-8", "replace"), random, snippets)
        return text.encode("utf-8", "replace")

    return Harness(
        lambda data: run(data.decode("utf-8", "replace")),
        lambda: [text.encode() for text in texts],
        mutate,
        ("specla", *instrument),
    )


def _mtp() -> bytes:
    return seeds.target(mtp=True)


HARNESSES: dict[str, Harness] = {
    "header": _of_file(
        files.open_header, ("count", "dims", "tensor", "frame"), seeds.target, seeds.drafter
    ),
    "metadata": _of_file(
        files.read_metadata,
        ("value", "type", "claimed type", "array"),
        seeds.vocabulary,
        seeds.target,
    ),
    "tensors": _of_file(files.read_tensors, ("dims", "tensor", "data", "value"), seeds.target),
    "tokenizer": _of_file(files.read_tokenizer, ("value", "array", "type"), seeds.vocabulary),
    "drafter": _of_file(
        files.read_drafter, ("value", "keys", "tensor", "dims"), seeds.drafter, _mtp
    ),
    "inspect": _of_file(
        files.inspect_file, ("value", "type", "keys", "dims"), seeds.target, seeds.drafter
    ),
    "template": _of_text(templates.render, templates.SEEDS, templates.SNIPPETS, "jinja2"),
    "proposals": Harness(
        proposals.check_proposal,
        lambda: [proposals.some_bytes(Random(seed)) for seed in range(20)],
        mutate_bytes,
    ),
    "expressions": _of_text(
        proposals.check_expression, proposals.EXPRESSIONS, proposals.EXPRESSION_SNIPPETS
    ),
}
