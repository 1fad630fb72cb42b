"""`specla adapters`: who can propose tokens, and with which options."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Entry:
    """One adapter. needs: in words.  options: name -> default (None: must be given).
    problem: why it can't load."""

    name: str
    origin: str
    needs: str
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
    rows = [(e.name, e.origin, e.needs, e.problem or _options(e)) for e in entries]
    write_table(("adapter", "from", "needs", "options (--adapter-opt)"), rows)


def listed() -> list[Entry]:
    """All adapters; one that can't be loaded is listed with the reason."""
    from specla.adapters import adapters

    return [_entry(name) for name in adapters.names()]


def _entry(name: str) -> Entry:
    from specla.adapters import adapters
    from specla.adapters.base import option_fields
    from specla.adapters.expression import adapter_class
    from specla.errors import SpeclaError

    try:
        kind = adapter_class(name)
        schema = kind.Options
        known = option_fields(name, schema)
    except SpeclaError as error:
        return Entry(name, adapters.origin(name), "unknown", {}, (), str(error))
    options = {field.name: _default(field) for field in known}
    required = tuple(field.name for field in known if is_required(field))
    return Entry(name, adapters.origin(name), _needs(kind, options, required), options, required)


def _needs(kind: type[Any], options: dict[str, Any], required: tuple[str, ...]) -> str:
    """What an adapter can't work without, in words."""
    from specla.adapters.combinator import Combinator

    if isinstance(kind, type) and issubclass(kind, Combinator):
        return "other adapters"
    words = []
    if "draft" in options:
        words.append("draft file" if "draft" in required else "draft file or the target's layer")
    if "draft" in required and "block" in options:
        words.append("features of the draft's layers")
    elif not required:
        words += _features(kind)
    return ", ".join(words) or "nothing"


def _features(kind: type[Any]) -> list[str]:
    """The layers that an adapter of default options reads."""
    try:
        schema = kind.Options
        layers = kind(schema() if schema is not None else None).needs().features
    except (
        Exception,
        SystemExit,
    ):  # a third party's code may fail in any way, and this is only a list
        return []
    if not layers:
        return []
    if layers == (-1,):
        return ["features of the last layer"]
    return [f"features of layers {', '.join(map(str, layers))}"]


def is_required(field: Field[Any]) -> bool:
    """Whether an option has no default."""
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
