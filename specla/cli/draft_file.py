"""A draft file before it is used: what it holds, and whether it fits the target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specla.adapters.base import TargetInfo
from specla.cli.speculation import DraftKind, TargetFacts, speculation
from specla.cli.speculation_flags import AUTO, SpeculationFlags
from specla.errors import OptionError, SpeclaError
from specla.models.load import ModelFile, bundled_drafter, bundled_model

if TYPE_CHECKING:
    from specla.models.dflash.load import DraftFile
    from specla.models.gguf.file import GgufFile

_ARCHITECTURE = "qwen35"


@dataclass(frozen=True)
class Draft:
    """An opened draft; its weights stay where they are."""

    path: str
    gguf: GgufFile
    kind: DraftKind
    drafter: DraftFile | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the file left open and what was taken instead."""
        return self.drafter.notes if self.drafter is not None else ()

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors, as the file holds them."""
        return sum(tensor.n_bytes for tensor in self.gguf.tensors.values())

    def check_fit(self, model: ModelFile) -> None:
        """Raise OptionError, one line, for a draft of another vocabulary or width, or one that
        reads layers which the target doesn't have. Adapters check again when they are bound."""
        if self.drafter is not None:
            _check_drafter(self.path, self.drafter, model)
            return
        config, metadata, tokens = model.config, self.gguf.metadata, "tokenizer.ggml.tokens"
        digest = metadata.digest(tokens)
        if None not in (digest, config.vocabulary) and digest != config.vocabulary:
            raise OptionError(
                f"draft {self.path} has another vocabulary ({metadata.count(tokens)} tokens) than "
                f"the target ({config.vocab_size}); use a draft of the target's family"
            )
        if self.kind is DraftKind.MTP:
            width = metadata.get_int(f"{_ARCHITECTURE}.embedding_length")
            if width != config.d_model:
                raise OptionError(
                    f"draft {self.path} has the width {width}, the target {config.d_model}; give "
                    f"the layer that belongs to this target"
                )


def _check_drafter(path: str, drafter: DraftFile, model: ModelFile) -> None:
    from specla.models.dflash.fit import check_fit

    config = model.config
    info = TargetInfo(
        architecture=_ARCHITECTURE,
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        eos_ids=config.eos_ids,
        max_nodes=1,
        backend=None,
        features=tuple(range(config.n_layers)),
        vocabulary=config.vocabulary,
    )
    try:
        check_fit(drafter.weights, info)
    except SpeclaError as error:
        raise OptionError(f"draft {path} doesn't fit the target: {error}") from None


def open_draft(path: str) -> Draft:
    """Open and classify a draft by architecture and tensors.

    Raises FileFormatError for a missing or damaged file, UnsupportedModelError for one that can't
    be a draft.
    """
    from specla.models.gguf.file import GgufFile

    gguf = GgufFile.open(path)
    if gguf.architecture == _ARCHITECTURE:
        whole = any(name.startswith("blk.0.") for name in gguf.tensors)
        return Draft(path, gguf, DraftKind.MODEL if whole else DraftKind.MTP, None)
    from specla.models.dflash.load import open_drafter

    drafter = open_drafter(path)
    dspark = drafter.weights.markov is not None
    return Draft(path, gguf, DraftKind.DSPARK if dspark else DraftKind.DFLASH, drafter)


def bundled_draft() -> Path | None:
    """The drafter that ships inside the package, for the bundled model; None if there is none."""
    path = bundled_drafter()
    return path if path.is_file() else None


def facts(model: ModelFile) -> TargetFacts:
    """What the choice of an adapter depends on."""
    mtp = model.config.n_mtp_layers > 0
    draft = bundled_draft() if is_bundled(model.path) else None
    if draft is None:
        return TargetFacts(mtp=mtp)
    return TargetFacts(str(draft), open_draft(str(draft)).kind, mtp)


def is_bundled(path: Path) -> bool:
    """Whether a target is the model that ships inside the package."""
    try:
        return path.samefile(bundled_model())
    except (OSError, ValueError):
        return False


def check_early(flags: SpeculationFlags, target: Path | None) -> None:
    """Raise OptionError for whatever is wrong with an adapter that was named, before any file is
    opened; "auto" is chosen when the files are open. target: None is the bundled model."""
    if flags.adapter == AUTO:
        return
    draft = bundled_draft() if target is None or is_bundled(target) else None
    speculation(flags, None, TargetFacts(own_draft=str(draft) if draft is not None else None))
