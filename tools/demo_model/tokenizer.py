"""Train the demo model's byte-level BPE tokenizer (Qwen3.5 pre-tokeniser, ``tokenizer.json``)."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

END_OF_TEXT = "<|endoftext|>"

# The split pattern of Qwen3.5, called "qwen35" in GGUF files.
QWEN35_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A tokenizer of exactly ``vocab_size`` entries; the last one is ``<|endoftext|>``.

    All 256 byte symbols are in the vocabulary, so that any text can be encoded.
    """
    tok = Tokenizer(BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN35_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab_size - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(texts, trainer)
    tok.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    if tok.get_vocab_size() != vocab_size or tok.token_to_id(END_OF_TEXT) != vocab_size - 1:
        raise ValueError(f"asked for {vocab_size} tokens, got {tok.get_vocab_size()}")
    return tok
