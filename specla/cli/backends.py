"""`specla backends`: what can compute here, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from specla.cli.device_words import device_words


@click.command("backends", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
def command(as_json: bool) -> None:
    """List the backends: whether each can be used on this machine, and how it computes."""
    from specla.cli.listing import write_table
    from specla.cli.output import utf8_stdout, write_json

    utf8_stdout()
    entries = listed()
    if as_json:
        write_json(entries)
        return
    rows = [(entry["name"], entry["origin"], state(entry)) for entry in entries]
    write_table(("backend", "from", "state"), rows)


def listed(known: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Each backend: name; origin; problem (None: usable); auto: whether "auto" chooses it; and, of
    a usable one, level, threads (for a small and for a large model), device (what it computes on,
    if that isn't the host's processor), notes (lines to read once) and code (the folder of compiled
    code), as far as it has them.

    known: backends that must not be tried, with the reason."""
    from specla.backends import backends, best_backend

    known = known or {}
    best = "numpy" if "numba" in known else best_backend()[0]
    return [
        {
            "name": name,
            "origin": backends.origin(name),
            "auto": name == best,
            **({"problem": known[name]} if name in known else _facts(name)),
        }
        for name in backends.names()
    ]


def _facts(name: str) -> dict[str, Any]:
    from specla.errors import SpeclaError

    try:
        return {"problem": None, **_found(name)}
    except SpeclaError as error:
        return {"problem": str(error)}
    except Exception as error:  # a third party's code may fail in any way
        return {"problem": f"{type(error).__name__}: {error}"}


def _found(name: str) -> dict[str, Any]:
    from specla.backends import create_backend
    from specla.backends.options import SMALL_MODEL
    from specla.cli.device_words import described
    from specla.cli.preparing import code_cache

    # notes are for those who decode
    made = [
        create_backend(name, model_bytes=size, note=lambda _: None) for size in (0, SMALL_MODEL)
    ]
    facts: dict[str, Any] = {}
    if (level := getattr(made[0], "level", None)) is not None:
        facts["level"] = level
    if hasattr(made[0], "threads"):
        facts["threads"] = [getattr(backend, "threads", 1) for backend in made]
    if device := described(made[0]):
        facts["device"] = device
    if notes := list(getattr(made[0], "notes", tuple)()):
        facts["notes"] = notes
    if (kept := code_cache(made[0])) is not None:
        place = kept.place()
        facts["code"] = None if place is None else str(place)
    return facts


def state(entry: dict[str, Any]) -> str:
    """A listed backend in words: how it computes, or why it can't."""
    if entry["problem"]:
        return str(entry["problem"])
    words = ["usable"]
    if entry["auto"]:
        words.append("the default")
    elif "device" in entry:
        words.append(f"if named: --backend {entry['name']}")
    if "level" in entry:
        words.append(f"CPU level {entry['level']}")
    if "device" in entry:
        words.append(f"on {device_words(entry['device'])}")
    if "threads" in entry:
        small, large = entry["threads"]
        by_size = f"{_threads(small)} for a small model, {large} for others"
        words.append(_threads(small) if small == large else by_size)
    if "code" in entry:
        words.append(f"code in {entry['code']}" if entry["code"] else "code is kept nowhere")
    return "; ".join([", ".join(words), *entry.get("notes", ())])


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
