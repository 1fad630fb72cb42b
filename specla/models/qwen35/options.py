"""How much room a target makes: its options, and the pool sizes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from specla.backends.pools import KvShape, RecurrentShape
from specla.core.paging import pages_for
from specla.errors import OptionError
from specla.models.qwen35.config import Qwen35Config


@dataclass(frozen=True)
class TargetOptions:
    """How much room to make, resolved before anything is loaded.

    context: most positions of one sequence.  max_nodes: largest tree, root included.
    chunk: most rows of one prefill step.  slots: sequences at once.  kv: cache type, "f16" or
    "f32".  features: 0-based ids of layers whose output is captured for a draft model.
    poison: NaN in fresh and freed memory, for tests.
    """

    context: int = 4096
    max_nodes: int = 65
    chunk: int = 512
    slots: int = 1
    kv: str = "f16"
    features: tuple[int, ...] = ()
    poison: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("context", 2, 1 << 24),
            ("max_nodes", 1, 4096),
            ("chunk", 1, 4096),
            ("slots", 1, 4096),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise OptionError(f"{name} is {value!r}; it must be a whole number {low}..{high}")
        if self.kv not in ("f16", "f32"):
            raise OptionError(f"kv is {self.kv!r}; the cache type is f16 or f32")


def check_features(features: tuple[int, ...], config: Qwen35Config) -> None:
    """Raise OptionError for a layer that the model doesn't have, or one that is named twice."""
    for layer in features:
        if not 0 <= layer < config.n_layers:
            raise OptionError(
                f"features of layer {layer} asked for; this model has layers "
                f"0..{config.n_layers - 1}"
            )
    if len(set(features)) != len(features):
        raise OptionError(f"features {features} name a layer twice; name each once")


def recurrent_shape(config: Qwen35Config, options: TargetOptions) -> RecurrentShape:
    """Sizes of durable state and factor banks."""
    return RecurrentShape(
        slots=options.slots,
        layers=config.n_gdn_layers,
        nodes=options.max_nodes,
        key_heads=config.n_key_heads,
        value_heads=config.n_value_heads,
        key_dim=config.key_dim,
        value_dim=config.value_dim,
        conv_width=config.conv_width,
    )


def kv_shape(config: Qwen35Config, options: TargetOptions) -> KvShape:
    """Sizes of the KV cache."""
    # siblings lie side by side, so the nodes of a wide tree reach beyond the context for a while
    rows = options.context + options.max_nodes
    return KvShape(
        slots=options.slots,
        layers=config.n_attention_layers,
        # one page per sequence in reserve for copy-on-write after a fork or snapshot
        pages=options.slots * (pages_for(rows) + 1),
        heads=config.n_kv_heads,
        head_dim=config.head_dim,
        context=rows,
        dtype=options.kv,
    )
