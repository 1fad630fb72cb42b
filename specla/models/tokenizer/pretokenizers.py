"""Pre-tokenizers: the regular expressions that cut text into words before BPE merges run.

A GGUF file names its pre-tokenizer in `tokenizer.ggml.pre`. To serve another one, add one entry to
`PRE_TOKENIZERS`. The expressions are the ones of the models' own `tokenizer.json` (Oniguruma
syntax); `qwen35` differs from `qwen2` in treating combining marks (`\\p{M}`) like letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from specla.errors import UnsupportedModelError
from specla.models.tokenizer.errors import one_line

PRE_TOKENIZERS: Mapping[str, str] = MappingProxyType(
    {
        "qwen2": (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
            r"|[^\r\n\p{L}\p{N}]?\p{L}+"
            r"|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+"
            r"|\s+(?!\S)"
            r"|\s+"
        ),
        "qwen35": (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
            r"|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+"
            r"|\s+(?!\S)"
            r"|\s+"
        ),
    }
)


def pre_tokenizer_pattern(name: str, source: str) -> str:
    """The regular expression of pre-tokenizer `name`; `source` is the file, for the error.

    Raises UnsupportedModelError for a name that isn't in `PRE_TOKENIZERS`.
    """
    pattern = PRE_TOKENIZERS.get(name)
    if pattern is None:
        found = one_line(name, 40)
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnsupportedModelError(
            f"{source}: tokenizer.ggml.pre is {found!r}, but specla knows only {known}: "
            "use a model with one of these pre-tokenizers"
        )
    return pattern
