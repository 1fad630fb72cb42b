"""`specla convert`: a Hugging Face checkpoint to a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specla.models.convert import Conversion


@click.command("convert", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="SOURCE_FOLDER")
@click.option("-o", "--output", required=True, metavar="OUT.gguf", help="The file to write.")
@click.option(
    "--outtype",
    default="q8_0",
    show_default=True,
    metavar="TYPE",
    help="Type of the matrices: f32, f16, bf16, q8_0 or q4_0.",
)
@click.option("--name", metavar="TEXT", help="The model's name.  [default: the folder's]")
@click.option("--pre", metavar="NAME", help="The pre-tokeniser, if it isn't recognised.")
@click.option("--tokenizer/--no-tokenizer", default=True, help="With a tokenizer (default) or not.")
@click.option("--mtp/--no-mtp", default=True, help="With the extra prediction layer (default).")
@click.option("--target", metavar="GGUF", help="A drafter's target: checked, tokenizer taken.")
@click.option("--aux-heads", metavar="FILE", help="A drafter's DSpark heads (.safetensors, .pt).")
@click.option("--no-aux-heads", is_flag=True, help="A drafter without its DSpark heads.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error but errors.")
def command(
    source: str,
    output: str,
    outtype: str,
    name: str | None,
    pre: str | None,
    tokenizer: bool,
    mtp: bool,
    target: str | None,
    aux_heads: str | None,
    no_aux_heads: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Convert SOURCE_FOLDER, a Qwen3.5 target or a drafter, to one GGUF file.

    The folder holds config.json, safetensors and (targets) tokenizer.json. The file appears under
    its name complete or not at all.
    """
    from pathlib import Path

    from specla.cli.progress import reporter
    from specla.errors import OptionError
    from specla.models.convert import convert_checkpoint

    if not force and Path(output).is_file():
        raise OptionError(f"{output} exists already; give --force to replace it")
    if name is not None and not name.isprintable():
        raise OptionError(f"--name is {name!r}; give printable text")
    if no_aux_heads and aux_heads is not None:
        raise OptionError("--aux-heads and --no-aux-heads exclude each other; give one of them")
    show = reporter(quiet=quiet)
    with show.step(f"converting {source} to {output}", "bytes") as advance:
        done = convert_checkpoint(
            source,
            output,
            outtype,
            tokenizer=tokenizer,
            pre=pre,
            mtp=mtp,
            target=target,
            aux_heads=None if no_aux_heads else Path(aux_heads) if aux_heads else "auto",
            name=name,
            overwrite=force,
            progress=advance,
        )
    show.rows(_rows(done))


def _rows(done: Conversion) -> list[tuple[str, str]]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in done.kinds.items())
    rows = [
        ("written", f"{done.path}, {done.n_bytes / 1e6:.1f} MB"),
        ("tensors", f"{done.n_tensors}: {kinds}"),
    ]
    return rows + [("note", note) for note in done.notes]
