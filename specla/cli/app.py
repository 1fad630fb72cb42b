"""The command group. Subcommands are imported when they run, so that start-up stays quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

import specla
from specla.cli.outcome import DONE
from specla.errors import OptionError

COMMANDS = {
    "decode": "Continue a text, with speculation or without: the same bytes.",
    "inspect": "Show what a GGUF file holds and whether specla can serve it.",
    "convert": "Convert a Hugging Face checkpoint (Qwen3.5, or a drafter) to a GGUF file.",
    "adapters": "List the adapters that can propose tokens.",
    "backends": "List the backends that can compute, and with what.",
    "doctor": "Show everything that decides what specla can do on this machine.",
    "warmup": "Compile the CPU backend's kernels now, so that later runs start at once.",
    "fuzz": "Play random orders of operations and compare every byte with plain decoding.",
}
"""Name -> help of the list; the command itself is ``specla.cli.NAME.command``."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"specla.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click's own would import every command for its help
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(specla.__version__, prog_name="specla", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Lossless speculative decoding on Gated-DeltaNet hybrid language models."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_app(argv: Sequence[str] | None) -> int:
    """Parse and run; returns the exit code. Raises OptionError for wrong usage.

    click's own ``main`` is not used: it prints usage errors over several lines and swallows
    interrupts.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with app.make_context("specla", arguments) as context:
            code = app.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        # click knows the command of some of these errors only
        name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
        path = error.ctx.command_path if error.ctx is not None else f"specla {name}".strip()
        raise OptionError(f"{error.format_message().rstrip('.')}; see '{path} --help'") from None
    except click.ClickException as error:
        raise OptionError(error.format_message()) from None
    return code if isinstance(code, int) else DONE
