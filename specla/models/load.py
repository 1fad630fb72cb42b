"""From a file to a model: configuration, weights and tokenizer, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from specla.backends.base import Backend
from specla.errors import CapacityError
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.models.qwen35.weights import Qwen35Weights
from specla.models.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from specla.models.gguf.file import GgufFile


def bundled_model() -> Path:
    """The demo model that ships inside the package."""
    return Path(str(files("specla") / "data" / "demo-q8_0.gguf"))


def bundled_drafter() -> Path:
    """The draft model of the demo model (DFlash with DSpark's heads), in the same place."""
    return bundled_model().with_name("demo-drafter-q8_0.gguf")


@dataclass(frozen=True)
class ModelFile:
    """An opened `qwen35` GGUF. Weights stay memory-mapped until a target is made."""

    path: Path
    gguf: GgufFile
    config: Qwen35Config
    weights: Qwen35Weights

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer. Raises FileFormatError or UnsupportedModelError."""
        return Tokenizer.from_metadata(self.gguf.metadata, str(self.path))

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a text."""
        return self.tokenizer.end_ids | frozenset(self.config.eos_ids)

    @property
    def matrix_kinds(self) -> frozenset[str]:
        """GGML types of the file's tensors."""
        return frozenset(tensor.kind for tensor in self.gguf.tensors.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors, as the file holds them."""
        return sum(tensor.n_bytes for tensor in self.gguf.tensors.values())

    def target(self, backend: Backend, options: TargetOptions) -> Qwen35Target:
        """Load the weights onto a backend and make room for sequences.

        Raises CapacityError where the memory doesn't suffice.
        """
        try:
            return Qwen35Target(self.weights, backend, options)
        except backend.out_of_memory:
            device = backend.describe().get("device")
            where = f" on {device}" if device else ""
            raise CapacityError(
                f"{self.path}: there is no memory{where} for {options.slots} sequences of "
                f"{options.context} positions with trees of {options.max_nodes} nodes; lower them"
            ) from None


def open_model(path: str | Path) -> ModelFile:
    """Open and check a GGUF file (any shard of a sharded one).

    Raises FileFormatError for a missing, damaged or inconsistent file, UnsupportedModelError for
    an architecture that specla doesn't serve.
    """
    from specla.models.gguf.file import GgufFile
    from specla.models.qwen35.config import read_config
    from specla.models.qwen35.weights import read_weights

    gguf = GgufFile.open(path)
    config = read_config(gguf)
    return ModelFile(Path(path), gguf, config, read_weights(gguf, config))
