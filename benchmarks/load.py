"""Opening a model: seconds until the file is open, the tokenizer made, the weights loaded; memory.

    python benchmarks/load.py --model MODEL.gguf [--threads 2] [--runs 5]

Every run is a process of its own, with the file in the page cache, the kernels compiled and all
libraries imported; the table has medians. Resident memory is what Linux counts (anonymous and
file-backed pages), after a prompt of 16 tokens and 4 more, beside the size of the file and of what
a sequence needs (state, factor banks, KV cache). The program is what Python and the libraries take
before the file is opened.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from harness import (
    Neighbours,
    Table,
    add_backend_options,
    add_model_option,
    argument_parser,
    machine_line,
    numba_backend,
)

from specla.adapters.base import create_adapter
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import SpeclaError
from specla.models.load import ModelFile, bundled_model, open_model
from specla.models.qwen35.options import TargetOptions, kv_shape, recurrent_shape
from specla.models.qwen35.target import Qwen35Target


def resident() -> dict[str, int]:
    """Bytes by kind: anon, file, shmem."""
    fields = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem"):
            fields[name[3:].lower()] = int(value.split()[0]) * 1024
    return fields


def sequence_bytes(target: Qwen35Target) -> int:
    """Durable state, both factor banks and the KV cache."""
    config, options = target.config, target.options
    recurrent, kv = recurrent_shape(config, options), kv_shape(config, options)
    banks = 2 * recurrent.nodes * recurrent.node_bytes
    return recurrent.slots * (recurrent.state_bytes + banks) + kv.pages * kv.page_bytes


def one_run(args: argparse.Namespace) -> dict[str, float]:
    """Measured in this process, which has opened nothing before."""
    backend = numba_backend(args)
    backend.prepare(args.once.split(","))
    _ = open_model(bundled_model()).tokenizer  # imports what opening imports
    program = resident()
    start = perf_counter()
    model = open_model(args.model)
    opened = perf_counter()
    _ = model.tokenizer
    tokenizer = perf_counter()
    target = model.target(backend, TargetOptions(context=args.context))
    loaded = perf_counter()
    use(target)
    after = resident()
    return {
        "open": opened - start,
        "tokenizer": tokenizer - opened,
        "load": loaded - tokenizer,
        "weights": tensor_bytes(model),
        "state": sequence_bytes(target),
        "program": sum(program.values()),
        **{name: float(value) for name, value in after.items()},
    }


def tensor_bytes(model: ModelFile) -> int:
    """Encoded size of all tensors."""
    return sum(tensor.raw.nbytes for tensor in model.gguf.tensors.values())


def use(target: Qwen35Target) -> None:
    """Touch what decoding touches."""
    with Session(target, create_adapter("none"), list(range(16))) as session:
        for _ in session.generate(Request(4, Sampler(SamplingParams()), budget=0)):
            pass


def warm(path: Path) -> None:
    """Bring the file into the page cache without mapping it."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 22):
            pass


def main() -> int:
    parser = argument_parser(__doc__)
    add_model_option(parser)
    add_backend_options(parser)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--once", metavar="KINDS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(one_run(args)))
        return 0
    try:
        backend = numba_backend(args)
        kinds = open_model(args.model).matrix_kinds
        backend.prepare(kinds)
    except SpeclaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.model.name}; {machine_line(backend)}", flush=True)
    report(args, ",".join(sorted(kinds)))
    return 0


def report(args: argparse.Namespace, kinds: str) -> None:
    """Run the processes and print the table."""
    warm(args.model)
    neighbours = Neighbours()
    runs = []
    for _ in range(args.runs):
        command = [sys.executable, *sys.argv, "--once", kinds]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    size, state = os.path.getsize(args.model), median["state"]
    total = median["anon"] + median["file"] + median["shmem"]
    mib = 2.0**20
    table = Table("what", "median")
    table.row("open the file, s", median["open"])
    table.row("make the tokenizer, s", median["tokenizer"])
    table.row("load the weights, s", median["load"])
    table.row("load the weights, GB/s", median["weights"] / median["load"] / 1e9)
    table.row("file, MiB", size / mib)
    table.row(f"sequence with {args.context} positions, MiB", state / mib)
    table.row("program, MiB", median["program"] / mib)
    table.row("resident, MiB", total / mib)
    table.row("of it anonymous, MiB", median["anon"] / mib)
    table.row("of it file-backed, MiB", median["file"] / mib)
    table.row("resident over file + sequence", total / (size + state))
    table.row("the same without the program", (total - median["program"]) / (size + state))
    print(f"\n{args.runs} runs; {neighbours.line()}")


if __name__ == "__main__":
    sys.exit(main())
