"""The two layouts of a drafter's config.json: keys in `dflash_config`, or flat at the top level.

Published readers take `dflash_config` first and the top level second, for every key but
`is_causal`, which is a top-level key with the nested `causal` as its fallback. Exports of the
speculators library keep the backbone's sizes in `transformer_layer_config`, which wins over the
top level.
"""

from __future__ import annotations

from typing import Any

from specla.errors import UnsupportedModelError
from specla.models.convert.json_file import Keys
from specla.models.gguf.text import fail, quoted, shown_path

# architectures of DFlash and DFlash2; of DSpark
_DFLASH = ("DFlashDraftModel", "DFlash2DraftModel")
_DSPARK = ("Qwen3DSparkModel", "DSparkDraftModel", "DSparkSpeculator", "Lfm2DSparkDraftModel",
           "LingDSparkModel")  # fmt: skip
DRAFTER_ARCHITECTURES = _DFLASH + _DSPARK
_PROJECTORS = ("dflash", "dflash2", "dspark")
# options of a checkpoint that have one supported value
_ONLY: tuple[tuple[str, Any], ...] = (
    ("hidden_act", "silu"),
    ("attention_bias", False),
    ("mlp_bias", False),
    ("attention_mode", "gqa"),
    ("markov_head_type", "vanilla"),
    ("enable_qwen35_gated_q_proj", False),
    ("attention_k_eq_v", False),
)


def looks_like_drafter(keys: Keys) -> bool:
    """Whether a config.json is a drafter's, supported or not."""
    if isinstance(keys.get("dflash_config"), dict):
        return True
    names = keys.get("architectures")
    return isinstance(names, list) and any(
        isinstance(name, str) and word in name.lower()
        for name in names
        for word in ("dflash", "dspark")
    )


class DraftKeys:
    """Typed access to both layouts at once; what was chosen or assumed is collected in `notes`."""

    def __init__(self, whole: Keys) -> None:
        backbone = whole.part("transformer_layer_config").values
        self.path = whole.path
        self.top = Keys(whole.path, whole.values | backbone)
        self.nested = whole.part("dflash_config")
        self.notes: list[str] = []
        self.architecture = _architecture(whole)
        # exports that count layers from 1 and keep slot 0 for the bonus token
        self.is_speculators = bool(backbone) or whole.get("aux_hidden_state_layer_ids") is not None
        projector = self.nested.get("projector_type")
        if projector is not None and projector not in _PROJECTORS:
            self._unsupported("projector_type", projector, f"one of {', '.join(_PROJECTORS)}")
        self.is_dspark = self.architecture in _DSPARK or projector == "dspark"
        self._check_options()

    def get(self, key: str) -> Any:
        return self.where(key).get(key)

    def where(self, key: str) -> Keys:
        """The level that decides about a key; a note when the other one says something else."""
        inner, outer = self.nested.get(key), self.top.get(key)
        if inner is None:
            return self.top
        if outer is not None and outer != inner:
            note = (
                f"{key} is {quoted(inner)} in dflash_config and {quoted(outer)} at the top level; "
                f"the former is used"
            )
            if note not in self.notes:
                self.notes.append(note)
        return self.nested

    def integer(self, key: str, *, low: int) -> int:
        """An integer that has to be there: no default stands in for it."""
        if self.get(key) is None:
            fail(self.path, f"{key} is missing, in dflash_config and at the top level; add it")
        return self.where(key).integer(key, low=low)

    def optional(self, key: str, *, low: int = 0) -> int | None:
        return None if self.get(key) is None else self.where(key).integer(key, low=low)

    def flag(self, key: str) -> bool | None:
        return None if self.get(key) is None else self.where(key).boolean(key)

    def _check_options(self) -> None:
        for key, only in _ONLY:
            found = self.get(key)
            if found is not None and found != only:
                self._unsupported(key, found, f"only {only!r}")
        if self.top.get("quantization_config"):
            self._unsupported("quantization_config", "present", "only float checkpoints")

    def _unsupported(self, key: str, found: object, only: str) -> None:
        where = shown_path(self.path)
        raise UnsupportedModelError(f"{where}: {key} {quoted(found)} is not supported; {only} is")


def _architecture(whole: Keys) -> str:
    names = whole.get("architectures")
    if names is None:
        return _DFLASH[0]
    if isinstance(names, list):
        for name in names:
            if name in DRAFTER_ARCHITECTURES:
                return str(name)
    known = ", ".join(DRAFTER_ARCHITECTURES)
    raise UnsupportedModelError(
        f"{shown_path(whole.path)}: a drafter of architectures {quoted(names)} is not supported; "
        f"specla converts {known}"
    )
