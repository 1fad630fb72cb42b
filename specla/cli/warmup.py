"""`specla warmup`: compile ahead of the first run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from specla.errors import OptionError, SpeclaError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from specla.backends.base import Backend
    from specla.cli.preparing import Prepared
    from specla.cli.progress import Row


@click.command("warmup", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("targets", nargs=-1, metavar="[TARGET.gguf ...]")
@click.option("--backend", "name", default="auto", show_default=True, metavar="NAME")
@click.option("--threads", type=int, metavar="N", help="As for 'specla decode'.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error but errors.")
def command(targets: tuple[str, ...], name: str, threads: int | None, quiet: bool) -> None:
    """Compile the kernels that the given models need, or all of them, and keep the code on disk.

    Later runs on this machine start at once. Kernels that are there already are not compiled again.
    """
    from specla.backends import create_backend
    from specla.binding import naming
    from specla.cli.decode_config import check_threads
    from specla.cli.preparing import code_cache, prepare_backend
    from specla.cli.progress import reporter
    from specla.models.load import open_model

    check_threads(threads)
    show = reporter(quiet=quiet)
    kinds = {kind for target in targets for kind in open_model(target).matrix_kinds}
    with naming("backend", name):
        backend = create_backend(
            name, threads=threads, note=lambda line: show.note(f"note: {line}")
        )
    kept = code_cache(backend)
    place = None if kept is None else kept.place()
    if kept is not None and place is None:
        raise _nowhere(kept)
    done = prepare_backend(backend, kinds if targets else None, show)
    if kept is not None and done.compiled and kept.folder() is None:
        raise _nowhere(kept)
    show.rows(_rows(backend, done, place))


def _nowhere(kept: ModuleType) -> SpeclaError:
    tried = ", ".join(map(str, kept.folders()))
    return OptionError(
        f"none of the folders for compiled code can be written ({tried}); set {kept.VARIABLE} to "
        f"one that can"
    )


def _rows(backend: Backend, done: Prepared, place: Path | None) -> list[Row]:
    from specla.cli.device_words import described

    if not backend.compiles:
        when = "compiles at first use" if described(backend) else "compiles nothing"
        return [("backend", f"{backend.name}, which {when}")]
    compiled = f"{done.compiled} compiled now" if done.compiled else "all there already"
    level = getattr(backend, "level", None)
    rows = [
        ("backend", f"{backend.name}, {level}" if level else backend.name),
        ("kernels", f"{done.kernels}, {compiled}"),
        ("time", f"{done.seconds:.1f} s"),
    ]
    return rows if place is None else [*rows, ("code", str(place))]
