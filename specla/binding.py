"""Introducing an adapter to its target, before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.errors import OptionError, SpeclaError
from specla.models.qwen35.target import Qwen35Target


def target_info(target: Qwen35Target, needs: Needs) -> TargetInfo:
    """The target as an adapter may know it. Raises OptionError if it can't give what is needed."""
    config = target.config
    wanted = needs.layers(config.n_layers)
    missing = [layer for layer in wanted if layer not in target.options.features]
    if missing:
        raise OptionError(
            f"the adapter needs features of layers {missing}, which this target does not capture; "
            f"load it with TargetOptions(features={wanted})"
        )
    return TargetInfo(
        architecture="qwen35",
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        eos_ids=config.eos_ids,
        max_nodes=target.options.max_nodes,
        backend=target.backend,
        context=target.options.context,
        features=target.options.features,
        vocabulary=config.vocabulary,
        embed=target.trunk.embed if needs.embeddings else None,
        lm_head=target.trunk.lm_head if needs.lm_head else None,
        parts=target.parts if needs.parts else None,
    )


@contextmanager
def naming(kind: str, name: str) -> Iterator[None]:
    """Somebody else's code may fail in any way; the user must learn whose it was.

    Whatever the block raises becomes an OptionError that names it.
    """
    try:
        yield
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        what = str(error) if isinstance(error, SpeclaError) else f"{type(error).__name__}: {error}"
        # named already, or another one that "auto" stands for
        if repr(name) in what or what.startswith(f"{kind} '"):
            raise OptionError(what) from error
        raise OptionError(f"{kind} {name!r} can't be used: {what}") from error


def bind(adapter: Adapter, name: str, target: Qwen35Target) -> None:
    """Show the adapter its target. Raises OptionError, naming the adapter, if they don't fit."""
    with naming("adapter", name):
        adapter.bind(target_info(target, adapter.needs()))
