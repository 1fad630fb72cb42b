"""`specla adapters`: who can propose tokens, and with which options."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

import click


@dataclass(frozen=True)
class Entry:
    """One adapter. options: name -> default (None: must be given). problem: why it can't load."""

    name: str
    origin: str
    options: dict[str, Any]
    required: tuple[str, ...]
    problem: str | None = None


@click.command("adapters", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
def command(as_json: bool) -> None:
    """List the adapters that can propose tokens, with their options and defaults."""
    from specla.cli.listing import write_table
    from specla.cli.output import utf8_stdout, write_json

    utf8_stdout()
    entries = listed()
    if as_json:
        write_json([vars(entry) for entry in entries])
        return
    rows = [(e.name, e.origin, e.problem or _options(e)) for e in entries]
    write_table(("adapter", "from", "options (--adapter-opt)"), rows)


def listed() -> list[Entry]:
    """All adapters; one that can't be loaded is listed with the reason."""
    from specla.adapters import adapters

    return [_entry(name) for name in adapters.names()]


def _entry(name: str) -> Entry:
    from specla.adapters import adapters
    from specla.errors import SpeclaError

    try:
        schema = getattr(adapters.get(name), "Options", None)
    except SpeclaError as error:
        return Entry(name, adapters.origin(name), {}, (), str(error))
    known = fields(schema) if schema is not None else ()
    options = {field.name: _default(field) for field in known}
    required = tuple(field.name for field in known if _is_required(field))
    return Entry(name, adapters.origin(name), options, required)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None


def _options(entry: Entry) -> str:
    texts = [
        f"{name} (required)" if name in entry.required else f"{name}={default}"
        for name, default in entry.options.items()
    ]
    return ", ".join(texts) or "none"
