"""`specla decode`: the options."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from specla.cli.output import is_terminal


@click.command("decode", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", required=False, metavar="[TARGET.gguf]")
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt.")
@click.option("-f", "--file", metavar="FILE", help="File with the prompt, as it is; - is stdin.")
@click.option("-n", "--max-tokens", type=int, default=128, help="Most tokens to write.")
@click.option("--temp", type=float, default=0.0, help="Temperature; 0 is greedy.")
@click.option("--top-k", type=int, default=0, help="Keep the k likeliest tokens; 0 is off.")
@click.option("--top-p", type=float, default=1.0, help="Keep this much probability; 1 is off.")
@click.option(
    "--min-p",
    type=float,
    default=0.0,
    help="Least share of the best token's probability.",
)
@click.option("--seed", type=int, default=0, help="Same seed, same text.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. Repeatable.")
@click.option("--repeat-penalty", type=float, default=1.0, help="For seen tokens; 1 is off.")
@click.option("--frequency-penalty", type=float, default=0.0, help="Per occurrence; 0 is off.")
@click.option("--presence-penalty", type=float, default=0.0, help="Per seen token; 0 is off.")
@click.option(
    "--penalty-window", type=int, default=0, help="Last tokens that count as seen; 0 is all."
)
@click.option(
    "--logit-bias", multiple=True, metavar="ID=VALUE", help="Add to a token's logit. Repeatable."
)
@click.option("--chat/--raw", default=False, help="Prompt as a user's message, or as it is (raw).")
@click.option("--system", metavar="TEXT", help="System message before the user's (with --chat).")
@click.option(
    "--special", is_flag=True, help="Names of special tokens in a raw prompt are the tokens."
)
@click.option(
    "--draft", metavar="FILE", help="Draft model: a DFlash, DSpark, qwen35 or MTP GGUF file."
)
@click.option(
    "--specla/--no-specla",
    default=None,
    help="Ask for SpecLA by name: a draft, trees, fast rollback.",
)
@click.option(
    "--adapter",
    default="auto",
    metavar="NAME",
    help="Who proposes: a name, or an expression such as adaptive(suffix); none is plain.",
)
@click.option(
    "--adapter-opt", multiple=True, metavar="KEY=VALUE", help="See 'specla adapters'. Repeatable."
)
@click.option("--budget", type=int, metavar="N", help="Most candidates per round.  [default: 22]")
@click.option("--ddtree-budget", type=int, metavar="N", help="The same, by its older name.")
@click.option(
    "--ddtree-tau", type=float, metavar="T", help="Drop paths so far below the best.  [default: 6]"
)
@click.option(
    "--specla-top-k", type=int, metavar="K", help="Children per node, with --specla.  [default: 4]"
)
@click.option(
    "--draft-swa", type=int, metavar="N", help="The draft's sliding window, in positions."
)
@click.option("--draft-block-size", type=int, metavar="N", help="The draft's block, root included.")
@click.option(
    "--no-fast-rollback", is_flag=True, help="Roll back by snapshot and replay: slower, same bytes."
)
@click.option(
    "--seq-verify", is_flag=True, help="Verify candidates one by one: slower, same bytes."
)
@click.option("--backend", default="auto", metavar="NAME", help="See 'specla backends'.")
@click.option(
    "--threads",
    type=int,
    metavar="N",
    help="Threads that share the work.  [default: SPECLA_THREADS, else by the model's size]",
)
@click.option(
    "--device",
    metavar="NAME",
    help="GPU of a backend that uses one: cuda:0.  [default: SPECLA_DEVICE, else the first]",
)
@click.option(
    "--ctx", type=int, metavar="N", help="Most positions.  [default: the model's, at most 4096]"
)
@click.option("--chunk", type=int, default=512, help="Prompt tokens per prefill step.")
@click.option("--kv", default="f16", metavar="f16|f32", help="Type of the KV cache.")
@click.option("--check", is_flag=True, help="Decode plainly too and compare every byte.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the text.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error but errors.")
def command(**given: Any) -> int:
    """Continue a text with TARGET.gguf, or with the bundled demo model.

    The text goes to standard output as it comes, progress and a summary to standard error. Without
    --prompt and --file the prompt is read from standard input. Ctrl-C ends the text cleanly.
    """
    from specla.cli.run_decode import run_decode

    return run_decode(_config(given))


for _parameter in command.params:
    if isinstance(_parameter, click.Option) and not (
        _parameter.is_flag or _parameter.multiple or _parameter.default is None
    ):
        _parameter.show_default = True


def _config(given: dict[str, Any]) -> Any:
    """The options as a DecodeConfig. Raises OptionError."""
    from specla.cli.decode_config import DecodeConfig, logit_bias
    from specla.core.sampling import SamplingParams

    file = given["file"]
    if file is None and given["prompt"] is None and not is_terminal(sys.stdin):
        file = "-"
    return DecodeConfig(
        text=given["prompt"],
        file=file,
        model=Path(given["target"]) if given["target"] is not None else None,
        chat=given["chat"],
        system=given["system"],
        special=given["special"],
        max_tokens=given["max_tokens"],
        sampling=SamplingParams(
            temperature=given["temp"],
            top_k=given["top_k"],
            top_p=given["top_p"],
            min_p=given["min_p"],
            seed=given["seed"],
            repetition_penalty=given["repeat_penalty"],
            frequency_penalty=given["frequency_penalty"],
            presence_penalty=given["presence_penalty"],
            penalty_window=given["penalty_window"],
            logit_bias=logit_bias(given["logit_bias"]),
        ),
        stop=given["stop"],
        flags=_flags(given),
        backend=given["backend"],
        threads=given["threads"],
        device=given["device"],
        context=given["ctx"],
        chunk=given["chunk"],
        kv=given["kv"],
        check=given["check"],
        json=given["as_json"],
        quiet=given["quiet"],
    )


def _flags(given: dict[str, Any]) -> Any:
    """The options that speak of speculation. Raises OptionError."""
    from specla.cli.decode_config import key_values
    from specla.cli.speculation_flags import Environment, SpeculationFlags

    return SpeculationFlags(
        adapter=given["adapter"],
        adapter_options=key_values("--adapter-opt", given["adapter_opt"]),
        draft=given["draft"],
        specla=given["specla"],
        budget=given["budget"],
        ddtree_budget=given["ddtree_budget"],
        tau=given["ddtree_tau"],
        top_k=given["specla_top_k"],
        window=given["draft_swa"],
        block=given["draft_block_size"],
        fast_rollback=not given["no_fast_rollback"],
        seq_verify=given["seq_verify"],
        environment=Environment.read(os.environ),
    )
