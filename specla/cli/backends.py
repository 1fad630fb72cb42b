"""`specla backends`: what can compute here, and with what."""

from __future__ import annotations

from typing import Any

import click


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
    rows = [(e["name"], e["origin"], e["problem"] or _words(e)) for e in entries]
    write_table(("backend", "from", "state"), rows)


def listed() -> list[dict[str, Any]]:
    """Each backend: name; origin; problem (None: usable); auto: whether "auto" chooses it; and, of
    a usable one, level, threads (for a small and for a large model) and code (the folder of
    compiled code), as far as it has them."""
    from specla.backends import backends, best_backend

    best, _ = best_backend()
    return [
        {
            "name": name,
            "origin": backends.origin(name),
            "auto": name == best,
            **_facts(name),
        }
        for name in backends.names()
    ]


def _facts(name: str) -> dict[str, Any]:
    from specla.backends import create_backend
    from specla.backends.options import SMALL_MODEL
    from specla.cli.preparing import code_cache
    from specla.errors import SpeclaError

    try:
        made = [create_backend(name, model_bytes=size) for size in (0, SMALL_MODEL)]
    except SpeclaError as error:
        return {"problem": str(error)}
    except Exception as error:  # a third party's code may fail in any way
        return {"problem": f"{type(error).__name__}: {error}"}
    facts: dict[str, Any] = {"problem": None}
    if (level := getattr(made[0], "level", None)) is not None:
        facts["level"] = level
    if hasattr(made[0], "threads"):
        facts["threads"] = [getattr(backend, "threads", 1) for backend in made]
    if (kept := code_cache(made[0])) is not None:
        place = kept.place()
        facts["code"] = None if place is None else str(place)
    return facts


def _words(entry: dict[str, Any]) -> str:
    words = ["usable"]
    if entry["auto"]:
        words.append("the default")
    if "level" in entry:
        words.append(f"CPU level {entry['level']}")
    if "threads" in entry:
        small, large = entry["threads"]
        by_size = f"{_threads(small)} for a small model, {large} for others"
        words.append(_threads(small) if small == large else by_size)
    if "code" in entry:
        words.append(f"code in {entry['code']}" if entry["code"] else "code is kept nowhere")
    return ", ".join(words)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
