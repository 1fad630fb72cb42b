"""`convert_drafter`: a DFlash, DFlash2 or DSpark checkpoint to one `dflash` GGUF file.

Keys, tensor names and the meaning of `dflash.target_layers` (layer id + 1) are llama.cpp's, so that
it can load the file too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specla.errors import OptionError
from specla.models.convert.dflash.config import DrafterConfig, read_drafter_config
from specla.models.convert.dflash.dspark_heads import (
    CONFIDENCE,
    SIDE_FILES,
    DsparkHeads,
    checked_heads,
    find_heads,
    head_name,
)
from specla.models.convert.dflash.keys import DraftKeys
from specla.models.convert.dflash.metadata import drafter_metadata
from specla.models.convert.dflash.plan import EMBEDDING, HEAD, MAP, backbone_moves, head_moves
from specla.models.convert.dflash.target import MASK_KEY, DraftTarget
from specla.models.convert.encode import FILE_TYPES, kind_for, to_write
from specla.models.convert.hf_config import TokenIds, eos_ids, token_id
from specla.models.convert.json_file import Keys, load_json
from specla.models.convert.output import Conversion, Request, count_kinds, write_model
from specla.models.convert.plan import Move
from specla.models.convert.safetensors import SafeTensor, open_checkpoint
from specla.models.convert.tokenizer import tokenizer_metadata
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.gguf.write import TensorToWrite, Value
from specla.models.inspect_drafter import DrafterReport, describe_drafter

# parts of a training checkpoint that no drafter needs: a buffer, the reverse of d2t, the target's
_SKIPPED = ("t2d", "verifier_", "rotary_emb.")


@dataclass(frozen=True)
class DrafterConversion(Conversion):
    """A written drafter. drafter: as read back from the file."""

    drafter: DrafterReport


def convert_drafter(request: Request) -> DrafterConversion:
    """Convert a drafter checkpoint for a request that was checked.

    Matrices get the wanted type (F16 where rows don't fill blocks), norms, convolution bases and
    the confidence head F32, the vocabulary map I64. Raises FileFormatError, UnsupportedModelError
    or OptionError, one line each.
    """
    folder = request.folder
    keys = DraftKeys(Keys(folder / "config.json", load_json(folder / "config.json")))
    whole = open_checkpoint(folder)
    tensors = _own_tensors(folder, whole, keys.notes)
    config = read_drafter_config(keys, {name: own.shape for name, own in tensors.items()})
    target = None if request.target is None else DraftTarget.open(request.target)
    if target is not None:
        target.check(config, keys.notes)
    heads = checked_heads(
        find_heads(folder, whole, request.aux_heads, keys.notes),
        config.d_model,
        config.vocab_size,
        config.draft_vocab_size,
        keys.optional("markov_rank"),
        keys.notes,
    )
    anchored = _samples_from_anchor(keys, heads, request.aux_heads is not None)
    planned = _planned(request, config, tensors, heads, keys)
    metadata = drafter_metadata(
        config,
        request.model_name or "drafter",
        FILE_TYPES[request.outtype],
        anchored if heads or anchored else None,
        CONFIDENCE in heads.tensors if heads else None,
        target is not None and target.multi_axis_rope,
    )
    metadata |= _tokenizer(request, keys, config, target)
    metadata[MASK_KEY] = Value("u32", _mask_token(keys, config, target))
    size, report = write_model(request, metadata, planned, describe_drafter)
    return DrafterConversion(
        request.output, len(planned), size, count_kinds(planned), tuple(keys.notes), report
    )


def _own_tensors(
    folder: Path, whole: Mapping[str, SafeTensor], notes: list[str]
) -> dict[str, SafeTensor]:
    """The checkpoint's tensors without the DSpark heads, by name without a leading `model.`."""
    if (folder / "mask_embedding.pt").exists():
        fail(folder, "holds mask_embedding.pt, a mask vector of its own; specla can't convert that")
    found: dict[str, SafeTensor] = {}
    n_skipped = 0
    for name, tensor in whole.items():
        short = name.removeprefix("model.")
        if short.startswith(_SKIPPED):
            n_skipped += 1
        elif head_name(name) is None:
            if short in found:
                fail(tensor.path, f"tensors {quoted(short)} and {quoted('model.' + short)} collide")
            found[short] = tensor
    if n_skipped:
        notes.append(f"left out {n_skipped} tensors that only training needs")
    return found


def _samples_from_anchor(keys: DraftKeys, heads: DsparkHeads, wanted: bool) -> bool:
    """Whether slot 0 already predicts. wanted: whether heads should be there."""
    stated = keys.flag("sample_from_anchor")
    if stated is None:
        stated = keys.flag("shift_label")
    anchored = stated
    if anchored is None and keys.is_dspark:
        anchored = not keys.is_speculators
    elif anchored is None:
        # heads added to a DFlash backbone leave its slots as they were
        anchored = bool(heads) and heads.inline and not keys.is_speculators
        if heads:
            keys.notes.append(f"sample_from_anchor is missing; {str(anchored).lower()} was assumed")
    if keys.is_dspark and not heads and wanted:
        where = shown_path(keys.path.parent)
        side = " or ".join(SIDE_FILES)
        raise OptionError(
            f"{where}: is a DSpark drafter, but its Markov head is missing; name the file with it "
            f"({side} beside config.json is found), or leave the heads out"
        )
    if anchored and not heads:
        keys.notes.append(
            "its first slot predicts already, which llama.cpp overlooks without the Markov head"
        )
    return bool(anchored)


def _planned(
    request: Request,
    config: DrafterConfig,
    tensors: dict[str, SafeTensor],
    heads: DsparkHeads,
    keys: DraftKeys,
) -> list[TensorToWrite]:
    """All tensors to write. Every tensor of the checkpoint is accounted for."""
    moves = backbone_moves(config, tensors)
    shared, dropped = _embedding_and_head(config, tensors, heads, keys)
    moves += shared
    used = {move.source for move in moves} | dropped | {MAP}
    for name, tensor in tensors.items():
        if name not in used:
            fail(tensor.path, f"tensor {quoted(tensor.name)} has no place in a dflash model")
    missing = [move.source for move in moves if move.source not in tensors]
    if missing:
        fail(request.folder, f"tensor {missing[0]} is missing ({len(missing)} of {len(moves)} are)")
    planned = [
        to_write(move, sources[move.source], kind_for(move, request.outtype))
        for moves, sources in ((moves, tensors), (head_moves(heads), heads.tensors))
        for move in moves
    ]
    if MAP in tensors:
        planned.append(_vocabulary_map(tensors[MAP], config))
    elif config.draft_vocab_size < config.vocab_size:
        fail(
            request.folder,
            f"tensor {MAP} is missing: draft_vocab_size is {config.draft_vocab_size}, vocab_size "
            f"{config.vocab_size}",
        )
    return planned


def _embedding_and_head(
    config: DrafterConfig, tensors: dict[str, SafeTensor], heads: DsparkHeads, keys: DraftKeys
) -> tuple[list[Move], set[str]]:
    """(moves of the drafter's own embedding and head, names of those that are left out).

    As llama.cpp's converter decides: a DSpark head of the full vocabulary is a copy of the
    target's. It is kept beside an embedding that differs, because llama.cpp takes a lone embedding
    for the head as well.
    """
    embedding, head = tensors.get(EMBEDDING), tensors.get(HEAD)
    reduced = config.draft_vocab_size < config.vocab_size
    moves, dropped = [], set()
    if embedding is not None and config.own_embedding:
        moves.append(Move(EMBEDDING, "token_embd.weight", (config.vocab_size, config.d_model)))
    elif embedding is not None:
        dropped.add(EMBEDDING)
        keys.notes.append("left out the embedding: has_embed_tokens is false")
    if head is None:
        if reduced:
            fail(
                keys.path.parent,
                f"tensor {HEAD} is missing, which a reduced vocabulary of "
                f"{config.draft_vocab_size} needs",
            )
        if moves and keys.flag("tie_word_embeddings") is not True:
            keys.notes.append(
                "has an embedding but no head of its own: llama.cpp takes the embedding for both"
            )
        return moves, dropped
    same = embedding is not None and np.array_equal(head.raw, embedding.raw)
    if (keys.is_dspark or heads) and not reduced and (not moves or same):
        dropped.add(HEAD)
        keys.notes.append(f"left out {HEAD}: a DSpark drafter uses the target's")
    else:
        moves.append(Move(HEAD, "output.weight", (config.draft_vocab_size, config.d_model)))
    return moves, dropped


def _vocabulary_map(source: SafeTensor, config: DrafterConfig) -> TensorToWrite:
    """`d2t`, a checkpoint's offsets, as absolute target ids: I64 [draft vocabulary]."""
    dtypes = {"I64": "<i8", "I32": "<i4"}
    if source.dtype not in dtypes or source.shape != (config.draft_vocab_size,):
        fail(
            source.path,
            f"tensor {source.name} holds {source.dtype} values of the shape {list(source.shape)}; "
            f"integers of the shape [{config.draft_vocab_size}] are needed",
        )
    offsets = source.raw.view(dtypes[source.dtype]).astype(np.int64)
    ids = offsets + np.arange(len(offsets))
    wrong = np.flatnonzero((ids < 0) | (ids >= config.vocab_size))
    if wrong.size:
        row = int(wrong[0])
        fail(
            source.path,
            f"tensor {source.name} leads from row {row} to the token {ids[row]} of "
            f"{config.vocab_size}",
        )
    if len(np.unique(ids)) != len(ids):
        fail(source.path, f"tensor {source.name} leads from two rows to the same token")

    def chunks() -> Iterator[bytes]:
        yield ids.astype("<i8").tobytes()

    return TensorToWrite(MAP, "I64", ids.shape, chunks)


def _tokenizer(
    request: Request, keys: DraftKeys, config: DrafterConfig, target: DraftTarget | None
) -> dict[str, Value]:
    """The target's tokenizer, else the checkpoint's own, else none."""
    if not request.tokenizer:
        return {}
    if target is not None:
        return target.tokenizer()
    if (request.folder / "tokenizer.json").exists():
        ids = TokenIds(
            config.vocab_size,
            eos_ids(keys.top, request.folder, config.vocab_size),
            token_id(keys.top, "bos_token_id"),
            token_id(keys.top, "pad_token_id"),
        )
        return tokenizer_metadata(request.folder, ids, request.pre)
    keys.notes.append("written without a tokenizer, which llama.cpp needs; name the target")
    return {}


def _mask_token(keys: DraftKeys, config: DrafterConfig, target: DraftTarget | None) -> int:
    if config.mask_token_id is not None:
        return config.mask_token_id
    found = None if target is None else target.mask_token_id
    if found is None:
        fail(keys.path, "mask_token_id is missing, in dflash_config and at the top level; add it")
    keys.notes.append(f"mask_token_id is missing; the target's mask token {found} was taken")
    return found
