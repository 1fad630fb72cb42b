"""A byte-level BPE vocabulary of a wanted size, made by rule: four letters of English a token.

Real vocabularies are licensed with their models; for speed only the size and the length of the
tokens count. Order: 256 bytes; pairs of letters; a space before a pair; then pairs of pairs,
evenly spread; then control tokens (Qwen's names for the first three) and unused ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase

from specla.models.gguf.write import Value
from specla.models.tokenizer.bytelevel import BYTE_LETTERS
from specla.models.tokenizer.metadata import CONTROL, NORMAL, UNUSED

_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def vocabulary_metadata(size: int, n_control: int, n_unused: int) -> dict[str, Value]:
    """The `tokenizer.*` keys of a file with `size` token ids."""
    n_normal = size - n_control - n_unused
    merges = list(_merges(n_normal - len(BYTE_LETTERS)))
    tokens = [*BYTE_LETTERS, *(left + right for left, right in merges)]
    control = [*_CONTROL, *(f"<|control_{i}|>" for i in range(n_control))][:n_control]
    tokens += [*control, *(f"[PAD{n_normal + n_control + i}]" for i in range(n_unused))]
    types = [NORMAL] * n_normal + [CONTROL] * n_control + [UNUSED] * n_unused
    end_of_text, end_of_turn = n_normal, n_normal + 2
    keys = {
        "model": Value("str", "gpt2"),
        "pre": Value("str", "qwen35"),
        "tokens": Value("str", tokens),
        "token_type": Value("i32", types),
        "merges": Value("str", [f"{left} {right}" for left, right in merges]),
        "add_bos_token": Value("bool", False),
        "eos_token_id": Value("u32", end_of_turn),
        "eot_token_id": Value("u32", end_of_text),
        "padding_token_id": Value("u32", end_of_text),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def _merges(count: int) -> Iterator[tuple[str, str]]:
    """The first `count` merges. Raises ValueError where the rule doesn't reach that far."""
    space = BYTE_LETTERS[ord(" ")]
    short = [(left, right) for left in ascii_lowercase for right in ascii_lowercase]
    pairs = [left + right for left, right in short]
    short += [(space, pair) for pair in pairs]
    yield from short[:count]
    more, possible = max(0, count - len(short)), len(pairs) ** 2
    if more > possible:
        raise ValueError(f"{count} merges asked for; the rule makes {len(short) + possible}")
    for index in range(more):
        left, right = divmod(index * possible // more, len(pairs))
        yield pairs[left], pairs[right]
