"""`specla backends`: what can compute here."""

from __future__ import annotations

import click


@click.command("backends", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
def command(as_json: bool) -> None:
    """List the backends, and whether each can be used on this machine."""
    from specla.cli.listing import write_table
    from specla.cli.output import utf8_stdout, write_json

    utf8_stdout()
    entries = listed()
    if as_json:
        write_json(entries)
        return
    rows = [(str(e["name"]), str(e["origin"]), str(e["problem"] or "usable")) for e in entries]
    write_table(("backend", "from", "state"), rows)


def listed() -> list[dict[str, str | None]]:
    """name, origin and problem (None: usable) of each backend."""
    from specla.backends import backends

    return [
        {"name": name, "origin": backends.origin(name), "problem": _problem(name)}
        for name in backends.names()
    ]


def _problem(name: str) -> str | None:
    from specla.backends import create_backend
    from specla.errors import SpeclaError

    try:
        create_backend(name)
    except SpeclaError as error:
        return str(error)
    except Exception as error:  # a third party's code may fail in any way
        return f"{type(error).__name__}: {error}"
    return None
