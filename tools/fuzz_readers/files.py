"""What is done to a file: every public way to open one, as far as it goes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from specla.adapters.base import TargetInfo
from specla.backends import create_backend
from specla.backends.base import Backend
from specla.cli.draft_file import open_draft
from specla.errors import SpeclaError
from specla.models.dflash.fit import check_fit
from specla.models.dflash.load import open_drafter
from specla.models.dflash.rope import draft_table
from specla.models.gguf import GgufFile
from specla.models.inspect import describe
from specla.models.load import ModelFile, open_model
from specla.models.mtp.weights import open_mtp
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.rotary import rotary_table
from specla.models.tokenizer.tokenizer import Tokenizer
from tools.fuzz_readers.contract import LONGEST

ROOM = TargetOptions(context=64, max_nodes=4, chunk=8)
TEXT = "hell <|im_start|>\n  o\u0308 <|im_end|> 12'll"
MESSAGES = [{"role": "user", "content": "hell"}, {"role": "assistant", "content": None}]


def open_header(path: Path) -> None:
    gguf = GgufFile.open(path)
    _ = gguf.n_bytes, len(gguf.metadata), list(gguf.tensors)


def read_metadata(path: Path) -> None:
    """Every key with every getter: only a FileFormatError may say that the type is another."""
    metadata = GgufFile.open(path).metadata
    getters = (
        metadata.get_int, metadata.get_float, metadata.get_bool, metadata.get_str,
        metadata.get_ints, metadata.get_floats, metadata.get_bools, metadata.get_strs,
    )  # fmt: skip
    for key in metadata:
        _ = metadata.type_name(key), metadata.count(key), metadata.digest(key)
        for getter in (metadata.__getitem__, *getters):
            _ignored(getter, key)


def read_tensors(path: Path) -> None:
    """Every tensor in every form, then the whole target on a backend."""
    gguf = GgufFile.open(path)
    for tensor in gguf.tensors.values():
        _ = tensor.matrix_shape, tensor.by_rows().shape
        _ignored(lambda tensor=tensor: tensor.to_weight())
        _ignored(lambda tensor=tensor: tensor.to_float32())
    load_target(path)


def load_target(path: Path) -> ModelFile:
    model = open_model(path)
    _ = model.matrix_kinds, model.weight_bytes
    cos, sin = rotary_table(4, model.config.rotary_dim, model.config.rope_base)
    if not (abs(cos) <= 1).all() or not (abs(sin) <= 1).all():
        raise ArithmeticError("a rotary table holds no cosines")
    model.target(_backend(), ROOM)
    return model


def read_tokenizer(path: Path) -> None:
    use_tokenizer(Tokenizer.from_metadata(GgufFile.open(path).metadata, str(path)))


def use_tokenizer(tokenizer: Tokenizer) -> None:
    _ = tokenizer.end_ids, tokenizer.special_tokens
    for special in (True, False):
        ids = tokenizer.encode(TEXT, parse_special=special, add_bos=False)
        if tokenizer.decode(ids) != TEXT:
            raise ArithmeticError(f"{TEXT!r} comes back as {tokenizer.decode(ids)!r}")
    for token in range(tokenizer.vocab_size):
        _ = tokenizer.token_bytes(token), tokenizer.is_hidden(token)
    _ignored(lambda: tokenizer.encode(TEXT, parse_special=True))
    tokenizer.chat_template().render(MESSAGES)


def read_drafter(path: Path) -> None:
    """A draft by each of the ways in; then whether it fits the target that the seeds are cut to."""
    _ignored(lambda: open_draft(str(path)))
    _ignored(lambda: open_mtp(path))
    drafter = open_drafter(path)
    drafter.check()
    cos, sin = draft_table(4, drafter.config.rope, 1e6)
    if not (abs(cos) < 1e9).all() or not (abs(sin) < 1e9).all():
        raise ArithmeticError("a rotary table holds no numbers")
    info = TargetInfo("qwen35", 262, 32, 2, (), 4, None, features=(0, 1))
    check_fit(drafter.weights, info)


def inspect_file(path: Path) -> None:
    json.dumps(describe(path).as_dict())


def open_any(path: Path) -> None:
    """As a target if it is one, else as a draft."""
    if _ignored(lambda: open_model(path).tokenizer) is not None:
        open_drafter(path)


def everything(path: Path) -> list[SpeclaError]:
    """All of it; the errors that came out, each of them ours."""
    ways = (open_header, read_metadata, read_tensors, read_tokenizer, read_drafter, inspect_file)
    return [error for way in ways if (error := _ignored(way, path)) is not None]


def _ignored(call: object, *arguments: object) -> SpeclaError | None:
    """Make a call that may fail, in our way only."""
    try:
        call(*arguments)  # type: ignore[operator]
    except SpeclaError as error:
        if "\n" in str(error) or len(str(error)) > LONGEST:
            raise ArithmeticError(f"no short line: {str(error)[:200]!r}") from error
        return error
    return None


@cache
def _backend() -> Backend:
    return create_backend("numpy")
