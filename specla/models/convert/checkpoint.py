"""`convert_checkpoint`: what a folder holds decides who converts it. A new kind is one more row."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specla.errors import OptionError, UnsupportedModelError
from specla.models.convert.dflash.drafter import convert_drafter
from specla.models.convert.dflash.keys import DRAFTER_ARCHITECTURES, looks_like_drafter
from specla.models.convert.hf_config import TARGET_TYPES, looks_like_target
from specla.models.convert.json_file import Keys, load_json
from specla.models.convert.output import Conversion, Progress, Request, check_request, silent
from specla.models.convert.qwen35 import convert_target
from specla.models.gguf.text import quoted, shown_path


@dataclass(frozen=True)
class Kind:
    """A kind of checkpoint.

    known_by: what its config.json shows, for messages.  recognises: whether a config.json is one.
    options: the fields of Request that only some kinds take, and this one does.
    """

    name: str
    known_by: str
    recognises: Callable[[Keys], bool]
    convert: Callable[[Request], Conversion]
    options: frozenset[str]


# the first that recognises a folder converts it
KINDS: tuple[Kind, ...] = (
    Kind(
        "drafter",
        f"architectures {', '.join(DRAFTER_ARCHITECTURES)}",
        looks_like_drafter,
        convert_drafter,
        frozenset({"target", "aux_heads"}),
    ),
    Kind(
        "target",
        f"model_type {', '.join(TARGET_TYPES)}",
        looks_like_target,
        convert_target,
        frozenset({"mtp"}),
    ),
)
_SPECIAL = {"target": None, "aux_heads": "auto", "mtp": True}


def convert_checkpoint(
    source_folder: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    outtype: str = "q8_0",
    *,
    tokenizer: bool = True,
    pre: str | None = None,
    mtp: bool = True,
    target: str | os.PathLike[str] | None = None,
    aux_heads: str | os.PathLike[str] | None = "auto",
    name: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Conversion:
    """Convert a checkpoint folder, a Qwen3.5 target or a drafter, to one GGUF file.

    The arguments are `Request`'s; those that the folder's kind has no use for are refused. Raises
    FileFormatError, UnsupportedModelError or OptionError, one line each.
    """
    heads: Path | Literal["auto"] | None
    if aux_heads is None or aux_heads == "auto":
        heads = None if aux_heads is None else "auto"
    else:
        heads = Path(aux_heads)
    request = Request(
        Path(source_folder), Path(output_path), outtype, tokenizer, pre, name, overwrite, mtp,
        None if target is None else Path(target), heads, progress,
    )  # fmt: skip
    check_request(request)
    kind = kind_of(request.folder)
    for option, default in _SPECIAL.items():
        if option not in kind.options and getattr(request, option) != default:
            raise OptionError(
                f"{shown_path(request.folder)}: holds a {kind.name}, for which the option "
                f"{option.replace('_', '-')} has no meaning; leave it out"
            )
    return kind.convert(request)


def kind_of(folder: Path) -> Kind:
    """What a checkpoint folder holds, by its config.json. Raises UnsupportedModelError."""
    path = folder / "config.json"
    keys = Keys(path, load_json(path))
    for kind in KINDS:
        if kind.recognises(keys):
            return kind
    found = f"model_type {quoted(keys.get('model_type'))}"
    if keys.get("architectures"):
        found += f", architectures {quoted(keys.get('architectures'))}"
    known = "; or ".join(f"a {kind.name} ({kind.known_by})" for kind in KINDS)
    raise UnsupportedModelError(
        f"{shown_path(path)}: {found} is not supported; specla converts {known}"
    )
