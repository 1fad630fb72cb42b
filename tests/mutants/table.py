"""docs/planted-bugs.md: ``python -m mutants.table`` writes it, a test compares."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from mutants.catalogue import PARTS, mutants, part
from mutants.mutant import Fuzz, Mutant

PAGE = Path(__file__).resolve().parents[2] / "docs" / "planted-bugs.md"

INTRODUCTION = """\
# Planted bugs

Tests that pass say little until somebody has seen them fail. So specla keeps a catalogue of planted
bugs: small changes to its real code, each of which makes it wrong on purpose, and for each the test
that must notice. A run with a bug that nobody notices fails. Most of them don't crash: text still
comes out, and only state, logits, a later token or the draft's luck are wrong, which is how such
bugs are met in practice.

{total} bugs are planted. {reported} are modelled on something that is public, named in the third
column ([bug-zoo.md](bug-zoo.md) has the links; "by reading" is a defect that we saw in an engine's
code); the others are mistakes that somebody could make.

*Caught by* names what must fail: a named test, or the fuzzer ([fuzzing.md](fuzzing.md)) in a short
run (`--short --seed 0`, as in continuous integration), or both.

## Run one

The bugs live in `tests/mutants/catalogue/`. Nothing in the package knows of them: a bug is switched
on in a process of its own, by changing a module's source text while it is imported.

```bash
cd tests
python -m mutants {example} pytest -q {example_test}
python -m mutants {example} fuzz --level {example_level} --backend numpy --short --save /tmp
```

Both must fail: the test with an assertion, the fuzzer with "found: a difference" and exit code 1.
What it saves shows the difference only while the bug is on:
`python -m mutants {example} script /tmp/specla-fuzz-kernels-numpy-0-1.py`.
`python -m mutants --list` lists all names.

The whole catalogue, each bug against each of its catchers (some minutes):

```bash
python -m pytest -q -n 2 -m mutants
```

A bug counts as caught only if a test fails or the fuzzer finds a difference. A test that can't be
found, an error while collecting, a stale change and a run without end count as failures of the
catalogue. Controls run the same tests with a change that changes nothing, and they must pass.

## Add one

1. Pick the module of `tests/mutants/catalogue/` that fits and add a `Mutant`: a name in words, what
   goes wrong in a sentence, and the text to replace. The text must occur exactly once in its
   module; a fast test says so when the code has moved on.
2. Name what must catch it in `caught_by`: `Named("tests/...::test_...")` for one fast test,
   `Fuzz("kernels" | "engine" | "model")` for the fuzzer.
3. Run it. If it survives, that is a hole: write the test that was missing.
   If no test can tell it from the original, it isn't a bug: leave it out.
4. `cd tests && python -m mutants.table` writes this page anew.
"""

TITLES = {
    "recurrence": "Recurrent layers",
    "plans": "Banks, schedule and plan",
    "attention": "KV cache and attention",
    "lifecycle": "Lifecycle",
    "store": "Slots, pages, forks and snapshots",
    "engine": "Decode loop, verification, acceptance",
    "sampling": "Sampling and ties",
    "adapters": "Adapters",
    "models": "Target and draft models",
    "numba": "The compiled backend",
    "zoo": "From the bug zoo",
}


def _row(mutant: Mutant) -> str:
    cells = (
        f"`{mutant.name}`",
        mutant.wrong,
        mutant.after or "nothing public",
        "<br>".join(map(str, mutant.caught_by)),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The text of the page."""
    example = next(m for m in mutants.values() if isinstance(m.caught_by[0], Fuzz))
    fuzz, named = example.caught_by
    assert isinstance(fuzz, Fuzz) and not isinstance(named, Fuzz)
    text = INTRODUCTION.format(
        total=len(mutants),
        reported=sum(bool(m.after) for m in mutants.values()),
        example=example.name,
        example_test=named.test.removeprefix("tests/"),
        example_level=fuzz.level,
    )
    for name in PARTS:
        text += f"\n## {TITLES[name]}\n\n"
        text += "| name | what goes wrong | modelled on | caught by |\n| --- | --- | --- | --- |\n"
        text += "".join(_row(mutant) + "\n" for mutant in part(name))
    catchers = Counter(
        catcher.level if isinstance(catcher, Fuzz) else "a named test"
        for mutant in mutants.values()
        for catcher in mutant.caught_by
    )
    counts = ", ".join(
        f"{count} by {'' if what == 'a named test' else 'the fuzzer, level '}{what}"
        for what, count in sorted(catchers.items())
    )
    return text + f"\nCaught, some by more than one: {counts}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
