"""`specla inspect`: what a GGUF file holds, what it costs, whether specla serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specla.cli.progress import Row
    from specla.models.inspect import ModelReport, StateCost
    from specla.models.inspect_drafter import DrafterReport
    from specla.models.qwen35.config import Qwen35Config


@click.command("inspect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(file: str, as_json: bool) -> None:
    """Show what a GGUF file (or a shard of a split one) holds.

    The exit code is 0 for every sound GGUF file, whether specla can serve it or not.
    """
    from specla.cli.listing import write_table
    from specla.cli.output import utf8_stdout, write_json
    from specla.models.inspect import describe

    utf8_stdout()
    report = describe(file)
    if as_json:
        write_json(report.as_dict())
    else:
        write_table((), report_rows(report))


def report_rows(report: ModelReport) -> list[Row]:
    """The report as labelled lines."""
    rows = [
        ("file", report.path),
        ("size", f"{_amount(report.file_bytes)} in {len(report.files)} file(s)"),
        ("architecture", report.architecture or "not named"),
        ("name", report.name or "none"),
        ("parameters", f"{report.parameters:,}"),
        *[
            (f"{kind} tensors", f"{use.tensors}, {use.weights:,} weights, {_amount(use.bytes)}")
            for kind, use in report.kinds.items()
        ],
        ("tokenizer", report.tokenizer or "none"),
    ]
    if report.config is not None:
        rows += _config_rows(report.config)
    if report.state is not None:
        rows += _state_rows(report.state)
    if report.drafter is not None:
        return [*rows, *_drafter_rows(report.drafter), ("served", f"as {report.reason}")]
    return [*rows, ("served", "yes" if report.serves else f"no: {report.reason}")]


def _drafter_rows(drafter: DrafterReport) -> list[Row]:
    layers = ", ".join(map(str, drafter.captured_layers))
    vocab = _named(drafter.vocab_size)
    if drafter.draft_vocab_size is not None:
        vocab += f" (drafts {drafter.draft_vocab_size} of them)"
    own = [
        name
        for name, is_own in (("embedding", drafter.own_embedding), ("head", drafter.own_head))
        if is_own
    ]
    shared = f", its own {' and '.join(own)}" if own else ""
    return [
        (
            "drafter",
            f"{drafter.kind}, blocks of {_named(drafter.block_size)}, "
            f"mask token {_named(drafter.mask_token_id)}",
        ),
        ("reads", f"{drafter.n_captured} target layers: {layers or 'not named'}"),
        ("layers", f"{drafter.n_layers}{_block_attention(drafter)}"),
        ("width", f"{drafter.d_model}, feed-forward {drafter.d_ff}, vocabulary {vocab}{shared}"),
        (
            "attention",
            f"{drafter.n_heads} query and {drafter.n_kv_heads} KV heads of {drafter.head_dim}, "
            f"RoPE base {_named(drafter.rope_base)}"
            + (f", scaled: {drafter.rope_scaling}" if drafter.rope_scaling else ""),
        ),
        ("heads", _heads(drafter)),
        ("fits", f"targets of {drafter.fits}"),
    ]


def _named(value: float | None) -> str:
    return "not named" if value is None else f"{value:.12g}"


def _block_attention(drafter: DrafterReport) -> str:
    kind = "causal" if drafter.causal else "bidirectional"
    if drafter.window is None:
        return f", {kind} inside the block"
    n_sliding = sum(drafter.sliding_layers)
    return f", {kind} inside the block, {n_sliding} with a window of {drafter.window}"


def _heads(drafter: DrafterReport) -> str:
    parts = []
    if drafter.markov_rank is not None:
        parts.append(f"Markov of rank {drafter.markov_rank}")
    if drafter.confidence_head:
        parts.append("confidence")
    if drafter.selector_rank is not None:
        top_k = "" if drafter.selector_top_k is None else f" over {drafter.selector_top_k}"
        parts.append(f"selector of rank {drafter.selector_rank}{top_k}")
    if drafter.first_slot_predicts:
        parts.append("the root's slot predicts")
    return ", ".join(parts) or "none"


def _config_rows(config: Qwen35Config) -> list[Row]:
    extra = f", {config.n_mtp_layers} for extra prediction" if config.n_mtp_layers else ""
    return [
        (
            "layers",
            f"{config.n_layers}: {config.n_gdn_layers} Gated DeltaNet, "
            f"{config.n_attention_layers} attention{extra}",
        ),
        (
            "width",
            f"{config.d_model}, feed-forward {config.d_ff}, vocabulary {config.vocab_size}"
            + (" (tied output)" if config.tied_output else ""),
        ),
        (
            "attention",
            f"{config.n_heads} query and {config.n_kv_heads} KV heads of {config.head_dim}, "
            f"{config.rotary_dim} rotated",
        ),
        (
            "recurrence",
            f"{config.n_key_heads} key heads of {config.key_dim}, {config.n_value_heads} value "
            f"heads of {config.value_dim}, convolution width {config.conv_width}",
        ),
        ("context", f"{config.context_length} positions"),
    ]


def _state_rows(state: StateCost) -> list[Row]:
    return [
        (
            "state",
            f"{_amount(state.recurrent_bytes + state.conv_bytes)} per sequence "
            f"(recurrent {_amount(state.recurrent_bytes)}, "
            f"convolution {_amount(state.conv_bytes)})",
        ),
        (
            "KV cache",
            f"{_amount(state.kv_bytes_per_token_f16)} per token in f16, "
            f"{_amount(state.kv_bytes_per_token_f32)} in f32",
        ),
        (
            "factor banks",
            f"{_amount(state.factor_bytes_per_node)} per node, {state.factor_banks} banks",
        ),
    ]


def _amount(count: int) -> str:
    """Bytes, exact below 10 KiB."""
    if count < 10 * 1024:
        return f"{count} bytes"
    for power, unit in ((1, "KiB"), (2, "MiB")):
        if count < 1024 ** (power + 1):
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count / 1024**3:.2f} GiB"
