"""What a run cost and what speculation brought, as labelled lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specla.cli.device_words import device_words
from specla.cli.progress import Row

_PHASES = ("draft", "verify", "choose", "commit")


def summary_rows(
    stats: Mapping[str, Any], settings: Mapping[str, Any], stop: str, load_seconds: float
) -> list[Row]:
    """stats: ``GenerationStats.report()``.  settings: as in the JSON output.  stop: the reason."""
    rows = [
        ("adapter", f"{settings['adapter']}, budget {settings['budget']}"),
        *_speculation(settings),
        ("backend", f"{_backend(settings)}, context {settings['context']}, KV {settings['kv']}"),
        ("load", f"{load_seconds:.2f} s"),
        ("prefill", _speed(tokens(stats["prefilled_tokens"]), stats["prefill_tokens_per_second"])),
        (
            "decode",
            _speed(
                f"{tokens(stats['emitted_tokens'])} in {stats['rounds']} rounds",
                stats["decode_tokens_per_second"],
            ),
        ),
        ("accept length", f"{stats['mean_accept_length']:.2f} on average"),
        ("rounds by length", histogram(stats["accept_length_histogram"])),
        ("time", _shares(stats["share"])),
    ]
    if stats["refused_proposals"]:
        refused = f"{stats['refused_proposals']} proposals; the last one: {stats['last_refusal']}"
        rows.append(("refused", refused))
    if stats["adapter_errors"]:
        failed = f"{stats['adapter_errors']} calls; the last one: {stats['last_adapter_error']}"
        rows.append(("adapter errors", failed))
    rows.append(("stop", stop))
    return rows


def _speculation(settings: Mapping[str, Any]) -> list[Row]:
    """What is worth a line: the draft, the options of every adapter, another kind of verify."""
    rows = [("draft", str(settings["draft"]))] if settings["draft"] else []
    options = [
        f"{name} " + " ".join(f"{key}={value}" for key, value in values.items() if key != "draft")
        for name, values in settings["adapter_options"].items()
    ]
    if options:
        rows.append(("options", "; ".join(options)))
    if settings["verification"] != "tree":
        rows.append(("verification", settings["verification"]))
    return rows


def histogram(counts: Mapping[int, int]) -> str:
    """``length:rounds`` pairs, shortest first, such as ``1:12 2:5 7:1``."""
    return " ".join(f"{length}:{count}" for length, count in sorted(counts.items())) or "none"


def tokens(count: int) -> str:
    """The number with its noun."""
    return f"{count} token" if count == 1 else f"{count} tokens"


def _backend(settings: Mapping[str, Any]) -> str:
    if (device := settings["device"]) is not None:
        return f"{settings['backend']} on {device_words(device)}"
    threads = settings["threads"]
    name = " ".join(filter(None, (settings["backend"], settings["cpu_level"])))
    return f"{name}, 1 thread" if threads == 1 else f"{name}, {threads} threads"


def _speed(what: str, rate: float) -> str:
    if not rate:  # a prompt of one token takes no prefill, so it has no speed
        return what
    return f"{what}, {rate:.1f} tokens/s" if rate >= 1 else f"{what}, {1 / rate:.1f} s/token"


def _shares(share: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {100 * share.get(phase, 0.0):.1f}%" for phase in _PHASES)
