"""Soaks: thousands of rounds, after each of which all state is compared with plain decoding.

    python benchmarks/soak.py --rounds 10000 --json soak.json

Three regimes (docs/soaks.md): nothing accepted, random paths accepted, everything accepted; chains
and trees mixed. Or a real adapter, as ``--adapter ngram``. Exit status 1 at the first byte that
differs, or when memory grew by more than 1 % after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import Neighbours, add_model_option, argument_parser, machine_line
from soak_proposals import REGIMES
from soak_result import Result, failures_of, print_table
from soak_rounds import Settings, Soak, Targets

from specla.backends import backends, create_backend
from specla.errors import OptionError, SpeclaError
from specla.models.load import ModelFile, open_model

PROMPTS = Path(__file__).parent / "prompts.txt"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return _soaks(args)
    except SpeclaError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argument_parser(__doc__)
    add_model_option(parser)
    parser.add_argument("--backend", action="append", help="may be repeated; all that work here")
    parser.add_argument("--regime", action="append", choices=REGIMES, help="may be repeated; all")
    parser.add_argument("--adapter", action="append", help="soak it, and regimes only if named")
    parser.add_argument("--rounds", type=int, default=Settings.rounds, help="of each regime")
    parser.add_argument("--context", type=int, default=Settings.context)
    parser.add_argument("--max-nodes", type=int, default=Settings.max_nodes, help="with the root")
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--keep-going",
        type=int,
        default=0,
        metavar="N",
        help="rounds after the first difference, to see what acceptance does",
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    return parser


def _soaks(args: argparse.Namespace) -> int:
    settings = Settings(args.rounds, args.context, args.max_nodes, args.seed, args.keep_going)
    if settings.rounds < 1:
        raise OptionError(f"--rounds is {settings.rounds}; it must be 1 or more")
    if args.json:
        _check_place(args.json)
    regimes = (args.regime or ([] if args.adapter else list(REGIMES))) + (args.adapter or [])
    model, neighbours = open_model(args.model), Neighbours()
    text = model.tokenizer.encode(PROMPTS.read_text("utf-8"), parse_special=False)
    results: list[Result] = []
    for name in args.backend or _usable():
        targets = _targets(model, name, settings, args.threads)
        print(f"{args.model.name}; {machine_line(targets.speculative.backend)}", flush=True)
        for regime in regimes:
            soak = Soak(targets, regime, settings, text, _say)
            try:
                results.append(soak.run())
            except OptionError:
                raise
            except SpeclaError as error:
                # the options were right, so what refuses to go on is at fault
                print(f"FAILED: {name}, {regime}: {type(error).__name__}: {error}")
                return 1
            if args.json:
                args.json.write_text(json.dumps(_json(settings, results), indent=1) + "\n")
            if results[-1].alarm.first is not None:
                print(results[-1].alarm.report(), flush=True)
    print_table(results)
    print(neighbours.line())
    failures = [line for result in results for line in failures_of(result)]
    for line in failures:
        print(f"FAILED: {line}")
    return 1 if failures else 0


def _check_place(file: Path) -> None:
    """Before the hours, not after them. Raises OptionError."""
    try:
        file.open("a").close()
    except OSError as error:
        raise OptionError(f"--json {file}: {error.strerror}") from None


def _usable() -> list[str]:
    """Every registered backend that can be made on this machine, but for interpreted ones."""
    usable = []
    for name in backends.names():
        try:
            backend = create_backend(name)
        except SpeclaError as error:
            _say(f"without backend {name}: {error}")
            continue
        if getattr(backend, "interpreted", False):
            _say(f"without backend {name}, which is interpreted: --backend {name} soaks it")
        else:
            usable.append(name)
    return usable


def _targets(model: ModelFile, name: str, settings: Settings, threads: int | None) -> Targets:
    # outputs of an early and of the last layer, as draft models read them
    options = settings.options(features=(1, model.config.n_layers - 1))
    backend = create_backend(name, threads=threads, model_bytes=model.weight_bytes)
    reference = model.target(create_backend("numpy"), options)
    return Targets(model.target(backend, options), model.target(backend, options), reference)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _json(settings: Settings, results: list[Result]) -> dict[str, object]:
    return {"settings": vars(settings), "soaks": [result.report() for result in results]}


if __name__ == "__main__":
    sys.exit(main())
