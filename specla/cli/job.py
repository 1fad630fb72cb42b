"""From settings to a job: files opened, settings checked against them, nothing loaded yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specla.adapters import adapters
from specla.adapters.base import Adapter, Needs
from specla.adapters.expression import parse
from specla.backends import create_backend
from specla.backends.base import Backend
from specla.binding import naming
from specla.cli.decode_config import DEFAULT_CONTEXT, DecodeConfig
from specla.cli.draft_file import Draft, facts, open_draft
from specla.cli.memory import check_memory
from specla.cli.progress import Reporter
from specla.cli.prompt import prompt_tokens, read_prompt
from specla.cli.speculation import Speculation, option_names, speculation
from specla.cli.speculation_flags import AUTO
from specla.errors import CapacityError, OptionError
from specla.models.load import ModelFile, bundled_model, open_model
from specla.models.qwen35.target import TargetOptions


@dataclass(frozen=True)
class Job:
    """All that a run needs, checked against the model, before the weights are loaded."""

    config: DecodeConfig
    speculation: Speculation
    model: ModelFile
    backend: Backend
    adapter: Adapter
    prompt: list[int]
    options: TargetOptions

    def settings(self) -> dict[str, Any]:
        """The settings as they came out, as JSON-able values."""
        return {
            **self.config.settings(),
            **self.speculation.settings(),
            "model": str(self.model.path),
            "backend": self.backend.name,
            "threads": getattr(self.backend, "threads", 1),
            "cpu_level": getattr(self.backend, "level", None),
            "device": self.backend.describe() or None,
            "context": self.options.context,
        }


def prepare(config: DecodeConfig, show: Reporter) -> Job:
    """Read the prompt, open the files and check the settings against them; loads no weights."""
    text = read_prompt(config)
    flags = config.flags
    path = flags.draft if flags.adapter == AUTO else None
    draft = open_draft(path) if path is not None else None
    model = open_model(config.model or bundled_model())
    chosen = speculation(flags, draft.kind if draft is not None else None, facts(model))
    backend = _backend(config, model, show)
    chosen = _where_possible(chosen, backend, show)
    draft = _fitting_draft(draft, chosen, model, show)
    with naming("adapter", chosen.adapter):
        adapter = chosen.create_adapter()
        features = _captured(chosen.adapter, adapter.needs(), model)
    prompt = prompt_tokens(config, text, model.tokenizer)
    options = TargetOptions(
        context=_context(config, model, len(prompt)),
        max_nodes=chosen.budget + 1,
        chunk=config.chunk,
        kv=config.kv,
        features=features,
    )
    for token in config.biased_tokens:
        if token >= model.config.vocab_size:
            raise OptionError(
                f"--logit-bias names token {token}; this model has tokens "
                f"0..{model.config.vocab_size - 1}"
            )
    check_memory(model, options, backend, 0 if draft is None else draft.weight_bytes)
    return Job(config, chosen, model, backend, adapter, prompt, options)


def _backend(config: DecodeConfig, model: ModelFile, show: Reporter) -> Backend:
    with naming("backend", config.backend):
        return create_backend(
            config.backend,
            threads=config.threads,
            device=config.device,
            model_bytes=model.weight_bytes,
            note=lambda line: show.note(f"note: {line}"),
        )


def _where_possible(chosen: Speculation, backend: Backend, show: Reporter) -> Speculation:
    """What was chosen, or plain decoding, said once, where the backend can't verify trees."""
    if backend.verifies_trees or chosen.adapter == "none" or chosen.verification == "sequential":
        return chosen
    reason = f"backend {backend.name!r} can't verify trees"
    show.note(f"warning: {reason}; decoding plainly, without adapter {chosen.adapter!r}")
    return chosen.plainly(reason)


def _fitting_draft(
    draft: Draft | None, chosen: Speculation, model: ModelFile, show: Reporter
) -> Draft | None:
    """The draft, opened; one that doesn't fit is refused before a large target is loaded.

    What another package's adapter takes for a draft is its own business: None.
    """
    if not chosen.draft:
        return None
    takers = [
        part.name
        for part in parse(chosen.adapter).walk()
        if "draft" in option_names(part.name, adapters.get(part.name).Options)
    ]
    if draft is None:
        if not all(adapters.origin(name) == "specla" for name in takers):
            return None
        draft = open_draft(chosen.draft)
    draft.check_fit(model)
    for note in draft.notes:
        show.note(f"note: {note}")
    return draft


def _context(config: DecodeConfig, model: ModelFile, prompt_length: int) -> int:
    context = config.context
    if context is None:
        context = max(min(DEFAULT_CONTEXT, model.config.context_length), 2)
    if prompt_length > context:
        raise CapacityError(
            f"the prompt has {prompt_length} tokens, more than the context of {context}; "
            f"shorten it or raise --ctx"
        )
    return context


def _captured(adapter: str, needs: Needs, model: ModelFile) -> tuple[int, ...]:
    """Layers whose output the target must capture."""
    n_layers = model.config.n_layers
    for layer in needs.features:
        if not isinstance(layer, int) or not -n_layers <= layer < n_layers:
            raise OptionError(
                f"adapter {adapter!r} needs features of layer {layer}; this model has layers "
                f"0..{n_layers - 1}; use another adapter"
            )
    return needs.layers(n_layers)
