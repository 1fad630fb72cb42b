"""Every adapter on held-out prompts: accept lengths and speed, against a chain of equal budget.

    python benchmarks/adapters.py [--model MODEL.gguf --draft DRAFT.gguf] [--backend numba]
    python benchmarks/adapters.py --adapter "adaptive(suffix)" --adapter myown --budget 4 --budget 8
    python benchmarks/adapters.py --sweep

Without ``--draft`` a model that isn't the bundled one is measured with adapters that need none.

Each setting decodes the prompts of ``prompts.txt`` (openings that the demo models were not trained
on), greedily and at a temperature. First every byte is compared with plain decoding (tokens, logits
and state); a setting that differs ends the program with nothing printed for it.

Then plain decoding (by a target that captures nothing for a draft), the setting and a *chain of
equal budget* from the same draft model alternate, greedily. Ratios are medians of neighbouring runs
over all prompts. A block drafter's chain ends at its block, so a chain may verify fewer rows than
its budget: ``rows`` says what a round really verified.
--sweep prints the accept lengths of trees for values of tau and top-k instead.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from harness import Neighbours, Table, argument_parser, interleaved, machine_line, median_ratio

from specla.adapters.base import Adapter, create_adapter
from specla.backends import create_backend
from specla.check import MismatchError, Trace, compare, plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import SpeclaError
from specla.models.load import ModelFile, bundled_drafter, bundled_model, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

PROMPTS = Path(__file__).parent / "prompts.txt"
BUDGETS = (3, 5, 7, 22)
Trajectory = tuple[Trace, dict[str, object]]


@dataclass(frozen=True)
class Setting:
    """One row. chain: options that turn it into a chain of the same draft, None if it is one or
    has no draft model."""

    name: str
    expression: str
    options: tuple[tuple[str, str], ...] = ()
    chain: tuple[tuple[str, str], ...] | None = None
    budgets: tuple[int, ...] = BUDGETS


PLAIN = Setting("plain", "none")


@dataclass
class Outcomes:
    """What a setting's runs brought. Each entry is one prompt's."""

    lengths: list[float] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)


SETTINGS = (
    Setting("ngram", "ngram", budgets=(7,)),
    Setting("suffix", "suffix", budgets=(7,)),
    Setting("block chain", "ddtree", (("top_k", "1"), ("tau", "inf")), budgets=(3, 5, 7)),
    Setting("Markov chain", "dspark", (("shape", "chain"),), budgets=(3, 5, 7)),
    Setting("ddtree", "ddtree", (), (("top_k", "1"), ("tau", "inf"))),
    Setting("dspark, spine's bias", "dspark", (("bias", "spine"),), (("shape", "chain"),)),
    Setting("dspark", "dspark", (), (("shape", "chain"),)),
    Setting("adaptive(dspark)", "adaptive(dspark)", budgets=(22,)),
    Setting("adaptive(suffix)", "adaptive(suffix)", budgets=(22,)),
)
TAUS, TOP_KS = ("2", "4", "6", "inf"), ("2", "4", "8")


def _drafted(setting: Setting) -> bool:
    """Whether it runs a block drafter."""
    return any(name in setting.expression for name in ("dspark", "ddtree"))


class Bench:
    """One target, its prompts and their plain continuations."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        model = open_model(args.model)
        draft = args.draft or (bundled_drafter() if args.model == bundled_model() else None)
        self.draft = {} if draft is None else {"draft": str(draft)}
        self.settings = self._settings()
        backend = create_backend(args.backend, threads=args.threads, model_bytes=model.weight_bytes)
        features = sorted({i for s in self.settings for i in self._layers(s, model)})
        options = TargetOptions(context=1024, max_nodes=65)
        self.plain: Qwen35Target = model.target(backend, options)
        options = replace(options, features=tuple(features))
        self.target: Qwen35Target = model.target(backend, options)
        for target in (self.plain, self.target):
            target.prepare_rows(range(1, max(BUDGETS) + 2))
        lines = PROMPTS.read_text().splitlines()[: args.prompts]
        self.prompts = [model.tokenizer.encode(line, parse_special=False) for line in lines]
        self._plain: dict[tuple[int, float], Trajectory] = {}

    def _settings(self) -> list[Setting]:
        """Those of the command line, or the usual ones, as far as there is a draft for them."""
        budgets = tuple(self.args.budget or (7,))
        given = tuple(option.split("=", 1) for option in self.args.adapter_opt)
        named = [Setting(name, name, given, None, budgets) for name in self.args.adapter]
        return named or [s for s in SETTINGS if self.draft or not _drafted(s)]

    def _layers(self, setting: Setting, model: ModelFile) -> tuple[int, ...]:
        return self.adapter(setting).needs().layers(model.config.n_layers)

    def adapter(self, setting: Setting) -> Adapter:
        """A fresh adapter; the draft model goes to those that have one."""
        options = dict(setting.options)
        if _drafted(setting):
            options |= self.draft
        return create_adapter(setting.expression, options)

    def sampler(self, temperature: float) -> Sampler:
        return Sampler(SamplingParams(temperature=temperature, seed=1))

    def _session(self, target: Qwen35Target, setting: Setting, prompt: list[int]) -> Session:
        return Session(target, self.adapter(setting), prompt, adapter_name=setting.expression)

    def check(self, setting: Setting, budget: int, temperature: float) -> Outcomes:
        """Decode every prompt; raise MismatchError unless all bytes are plain decoding's."""
        done = Outcomes()
        for i, prompt in enumerate(self.prompts):
            trace = Trace()
            with self._session(self.target, setting, prompt) as session:
                request = Request(
                    self.args.tokens,
                    self.sampler(temperature),
                    budget=budget,
                    on_logits=trace.on_logits,
                )
                trace.tokens = [event.token for event in session.generate(request)]
                state = self.target.state_arrays(session.sequence)
                stats = session.stats
            plain, plain_state = self._plain_run(i, temperature)
            compare(trace, plain, state, plain_state, len(prompt))
            done.lengths.append(stats.mean_accept_length)
            done.rows.append(stats.rows / stats.rounds)
        return done

    def _plain_run(self, i: int, temperature: float) -> Trajectory:
        key = (i, temperature)
        if key not in self._plain:
            self._plain[key] = plain_decode(
                self.plain, self.prompts[i], self.args.tokens, self.sampler(temperature)
            )
        return self._plain[key]

    def timed(self, setting: Setting, budget: int, prompt: list[int]) -> Callable[[], float]:
        """Decode once, greedily; returns seconds."""

        target = self.plain if setting is PLAIN else self.target

        def run() -> float:
            with self._session(target, setting, prompt) as session:
                request = Request(self.args.tokens, self.sampler(0.0), budget=budget)
                start = perf_counter()
                for _ in session.generate(request):
                    pass
                return perf_counter() - start

        return run

    def speeds(self, setting: Setting, budget: int) -> tuple[float, float | None]:
        """Speed over plain decoding, and over the chain of equal budget."""
        contenders = {"plain": PLAIN, "setting": setting}
        if setting.chain is not None:
            contenders["chain"] = replace(setting, options=setting.chain)
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for prompt in self.prompts:
            functions = {n: self.timed(s, budget, prompt) for n, s in contenders.items()}
            for name, found in interleaved(functions, self.args.runs).items():
                times[name] += found
        over_chain = median_ratio(times["chain"], times["setting"]) if "chain" in times else None
        return median_ratio(times["plain"], times["setting"]), over_chain


def table(bench: Bench) -> None:
    """All settings at all their budgets."""
    temperature = bench.args.temp
    out = Table(
        "adapter",
        "budget",
        "accept length, greedy",
        f"at {temperature:g}",
        "rows per round",
        "speed over plain",
        "over a chain of equal budget",
    )
    for setting in bench.settings:
        for budget in setting.budgets:
            greedy = bench.check(setting, budget, 0.0)
            warm = bench.check(setting, budget, temperature)
            over_plain, over_chain = bench.speeds(setting, budget)
            out.row(
                setting.name,
                budget,
                statistics.mean(greedy.lengths),
                statistics.mean(warm.lengths),
                statistics.mean(greedy.rows),
                over_plain,
                "-" if over_chain is None else over_chain,
            )


def sweep(bench: Bench) -> None:
    """Accept lengths of the branch-conditioned tree over tau and top-k."""
    temperature, budget = bench.args.temp, 22
    out = Table("tau", "top-k", "accept length, greedy", f"at {temperature:g}", "rows per round")
    for tau, top_k in _grid():
        setting = Setting("dspark", "dspark", (("tau", tau), ("top_k", top_k)))
        greedy = bench.check(setting, budget, 0.0)
        warm = bench.check(setting, budget, temperature)
        lengths = (statistics.mean(greedy.lengths), statistics.mean(warm.lengths))
        out.row(tau, top_k, *lengths, statistics.mean(greedy.rows))


def _grid() -> Iterator[tuple[str, str]]:
    for tau in TAUS:
        for top_k in TOP_KS:
            yield tau, top_k


def main() -> int:
    parser = argument_parser(__doc__ or "")
    add = parser.add_argument
    add("--model", type=Path, default=bundled_model(), help="the target; bundled by default")
    add("--draft", type=Path, help="a block drafter; the bundled target's own by default")
    add("--adapter", action="append", default=[], help="measure this one; repeatable")
    add("--adapter-opt", action="append", default=[], help="KEY=VALUE, for --adapter")
    add("--budget", action="append", type=int, default=[], help="for --adapter; repeatable")
    add("--backend", default="auto", help="numba, numpy or another; auto by default")
    add("--threads", type=int, help="by the model's size by default")
    add("--prompts", type=int, default=24, help="how many, at most 24")
    add("--tokens", type=int, default=128, help="to decode after each")
    add("--runs", type=int, default=3, help="timed runs of each setting and prompt")
    add("--temp", type=float, default=0.8, help="of the second accept length")
    add("--sweep", action="store_true", help="tau and top-k of dspark trees instead")
    args = parser.parse_args()
    try:
        bench = Bench(args)
        neighbours = Neighbours()
        print(machine_line(bench.target.backend))
        drafter = Path(bench.draft["draft"]).name if bench.draft else "no drafter"
        print(f"{args.model.name}, {drafter}, {len(bench.prompts)} prompts, ", end="")
        print(f"{args.tokens} tokens, {args.runs} runs; bytes checked")
        (sweep if args.sweep else table)(bench)
    except MismatchError as error:
        print(f"NOT MEASURED: {error}", file=sys.stderr)
        return 1
    except SpeclaError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    print(neighbours.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
