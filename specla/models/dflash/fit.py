"""Whether a drafter fits a target, and the options that it is run with.

All refusals are OptionErrors of one line."""

from __future__ import annotations

from dataclasses import replace

from specla.adapters.base import TargetInfo
from specla.errors import OptionError
from specla.models.dflash.config import DraftConfig
from specla.models.dflash.weights import DraftWeights
from specla.models.gguf.text import quoted


def check_block(config: DraftConfig, block: int | None) -> int:
    """Slots of a block, root included. Raises OptionError out of the file's range."""
    low, high = config.least_slots, config.most_slots
    if block is None:
        block = config.block_size
        remedy = "give a block size in that range"
    else:
        remedy = f"the draft was trained with {config.block_size}"
    if isinstance(block, bool) or not isinstance(block, int) or not low <= block <= high:
        raise OptionError(
            f"the draft's block size is {block!r}; {low}..{high} is possible: {remedy}"
        )
    return block


def with_window(config: DraftConfig, window: int | None) -> DraftConfig:
    """The drafter with another sliding window.

    Where no layer has one, all but the last get it, as lucebox does it. Raises OptionError for a
    window below 1 and for a single layer without one.
    """
    if window is None:
        return config
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise OptionError(
            f"the draft's sliding window is {window!r}; it must be 1 or more positions"
        )
    sliding = config.sliding
    if not any(sliding):
        sliding = (True,) * (config.n_layers - 1) + (False,)
        if not any(sliding):
            raise OptionError(
                f"a sliding window of {window} was asked for, but the draft {quoted(config.name)} "
                f"has a single layer, which sees everything; leave the option out"
            )
    return replace(config, window=window, sliding=sliding)


def check_fit(weights: DraftWeights, target: TargetInfo) -> None:
    """Raise OptionError unless the drafter was made for this target, as far as files can tell."""
    config, name = weights.config, f"draft {quoted(weights.config.name)}"
    wrong = [layer for layer in config.target_layers if layer >= target.n_layers]
    if wrong:
        raise OptionError(
            f"{name} reads the output of layer {wrong[0]}; the target's last layer is "
            f"{target.n_layers - 1}: it was made for another target"
        )
    if weights.feature_width != target.d_model:
        raise OptionError(
            f"{name} takes features of width {weights.feature_width} from "
            f"{len(config.target_layers)} layers; the target's width is {target.d_model}: it was "
            f"made for another target"
        )
    shared = weights.embedding is None or weights.output is None
    if shared and config.d_model != target.d_model:
        raise OptionError(
            f"{name} has the width {config.d_model} and shares matrices with the target, whose "
            f"width is {target.d_model}"
        )
    _check_vocabulary(weights, target, name)
    missing = [layer for layer in config.target_layers if layer not in target.features]
    if missing:
        raise OptionError(f"{name} reads the output of layers {missing}, which are not captured")


def _check_vocabulary(weights: DraftWeights, target: TargetInfo, name: str) -> None:
    config, size = weights.config, target.vocab_size
    if config.n_tokens is not None and config.n_tokens != size:
        raise OptionError(f"{name} has {config.n_tokens} tokens, the target has {size}")
    known = target.vocabulary is not None and config.vocabulary is not None
    if known and target.vocabulary != config.vocabulary:
        raise OptionError(f"{name} was made for another vocabulary: its token list differs")
    if config.mask_token >= size:
        raise OptionError(f"{name} masks with token {config.mask_token} of {size} tokens")
    if weights.ids is not None and weights.ids[-1] >= size:
        raise OptionError(f"{name} drafts token {weights.ids[-1]} of {size} tokens")
    drafted = size if weights.ids is None else len(weights.ids)
    for source, rows in (
        (weights.embedding, size),
        (weights.output, drafted),
        (weights.markov.before if weights.markov else None, size),
        (weights.markov.after if weights.markov else None, drafted),
        (weights.selector.before if weights.selector else None, size),
        (weights.selector.after if weights.selector else None, size),
    ):
        if source is not None and source.rows != rows:
            raise OptionError(f"{name}: {source.name} has {source.rows} rows for {rows} tokens")
