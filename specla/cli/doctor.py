"""`specla doctor`: the whole environment on one page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from specla.cli.progress import Row


@click.command("doctor", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool) -> None:
    """Show everything that decides what specla can do on this machine: versions, processor, GPUs,
    backends and why one can't be used, folders of compiled code, environment variables.

    The exit code is 0, whatever is found. Add the output to a report of a problem.
    """
    from specla.cli.environment import environment
    from specla.cli.listing import write_table
    from specla.cli.output import utf8_stdout, write_json

    utf8_stdout()
    found = environment()
    if as_json:
        write_json(found)
    else:
        write_table((), list(_rows(found)))


def _rows(found: dict[str, Any]) -> Iterator[Row]:
    yield "specla", f"{found['specla']['version']} in {found['specla']['folder']}"
    python = found["python"]
    yield "Python", f"{python['implementation']} {python['version']}, {python['executable']}"
    yield (
        "system",
        _section(found["system"], lambda s: f"{s['os']}, {s['release']}, {s['machine']}"),
    )
    yield from _cpu(found["cpu"])
    yield "memory", _section(found["memory"], _memory)
    for name, package in found["packages"].items():
        yield name, _package(package)
    yield from _backends(found["backends"])
    yield from _gpus(found["gpus"])
    yield from _caches(found["caches"])
    for name, value in found["variables"].items():
        yield name, repr(value)


def _section(section: Any, words: Any) -> str:
    if set(section) == {"problem"}:
        return f"unknown: {section['problem']}"
    return str(words(section))


def _cpu(cpu: dict[str, Any]) -> Iterator[Row]:
    if "model" in cpu:
        quota = f", time of {cpu['quota']}" if cpu["quota"] is not None else ""
        yield "CPU", f"{cpu['model']}, {cpu['usable']} of {cpu['present']} usable{quota}"
    if cpu.get("problem"):
        yield "CPU levels", f"unknown: {cpu['problem']}"
    else:
        yield "CPU levels", f"{', '.join(cpu['levels'])}; {cpu['level']} is used"
        yield "CPU features", ", ".join(cpu["features"]) or "none that matter"


def _memory(memory: dict[str, Any]) -> str:
    from specla.cli.device_words import gib

    amounts = [f"{gib(memory[key])} {key}" for key in memory if memory[key] is not None]
    return ", ".join(amounts) or "unknown"


def _package(package: dict[str, Any]) -> str:
    if package["version"] is None:
        return "not installed"
    problem = package["problem"]
    return f"{package['version']}, broken: {problem}" if problem else str(package["version"])


def _backends(backends: Any) -> Iterator[Row]:
    from specla.cli.backends import state

    if isinstance(backends, dict):
        yield "backends", f"unknown: {backends['problem']}"
        return
    for entry in backends:
        yield f"backend {entry['name']}", state(entry)


def _gpus(gpus: dict[str, Any]) -> Iterator[Row]:
    from specla.cli.device_words import device_words

    devices = gpus.get("devices", [])
    if not devices:
        yield "GPU", f"none found: {gpus['problem']}"
    for device in devices:
        yield "GPU", device_words(device)


def _caches(caches: Any) -> Iterator[Row]:
    if isinstance(caches, dict):
        yield "caches", f"unknown: {caches['problem']}"
        return
    for cache in caches:
        size = f"{cache['files']} files, {cache['bytes'] / 2**20:.1f} MiB"
        held = size if cache["exists"] else "not there yet"
        can = "writable" if cache["writable"] else "not writable"
        yield f"code of {cache['of']}", f"{cache['folder']}, {can}, {held}"
