"""How a run speculates: the choice as one frozen value, and what it leads to."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli.cli_draft import write_draft
from cli.cli_expected import PROMPT, PROMPT_IDS, N, plainly, report, token_text

from specla import verification
from specla.adapters.base import Adapter, adapters
from specla.backends import backends
from specla.backends.numpy.backend import NumpyBackend
from specla.cli import draft_file
from specla.cli.draft_file import open_draft
from specla.cli.speculation import DraftKind, Speculation, TargetFacts, speculation
from specla.cli.speculation_flags import SPECLA, TOP_K, Environment, SpeculationFlags
from specla.core.proposal import Proposal
from specla.errors import OptionError

PLAIN = TargetFacts()
OWN = TargetFacts(own_draft="own.gguf")


def chosen(kind: DraftKind | None = None, facts: TargetFacts = PLAIN, **flags: Any) -> Speculation:
    return speculation(SpeculationFlags(**flags), kind, facts)


@pytest.mark.parametrize("kind", list(DraftKind))
def test_a_draft_decides(kind: DraftKind) -> None:
    found = chosen(kind, draft="d.gguf")
    wanted = {
        DraftKind.DSPARK: "adaptive(dspark)", DraftKind.DFLASH: "adaptive(ddtree)",
        DraftKind.MODEL: "adaptive(chain)", DraftKind.MTP: "adaptive(mtp)",
    }  # fmt: skip
    assert (found.adapter, found.draft, found.budget) == (wanted[kind], "d.gguf", 22)
    assert dict(found.options) == {"draft": "d.gguf"}


def test_without_a_draft_the_target_decides() -> None:
    assert chosen().adapter == "adaptive(suffix)"
    assert chosen(facts=TargetFacts(mtp=True)).adapter == "adaptive(mtp)"
    own = chosen(facts=OWN)
    assert (own.adapter, own.draft) == ("adaptive(dspark)", "own.gguf")
    # a draft that is given goes before the target's own
    assert chosen(DraftKind.DFLASH, OWN, draft="d.gguf").draft == "d.gguf"


def test_an_adapter_that_is_named_is_taken_as_it_is() -> None:
    assert chosen(adapter="fallback( suffix,ngram )").adapter == "fallback(suffix, ngram)"
    assert chosen(DraftKind.DSPARK, adapter="ddtree", draft="d.gguf").adapter == "ddtree"
    # only what runs block drafters gets the target's own one
    assert chosen(facts=OWN, adapter="ddtree").draft == "own.gguf"
    assert chosen(facts=OWN, adapter="mtp").draft is None
    with pytest.raises(OptionError, match="'chain' needs the option draft"):
        chosen(facts=OWN, adapter="chain")


def test_a_draft_for_one_of_several() -> None:
    options = (("chain.draft", "c.gguf"),)
    found = chosen(adapter="fallback(chain, dspark)", draft="d.gguf", adapter_options=options)
    resolved = found.settings()["adapter_options"]
    assert (resolved["chain"]["draft"], resolved["dspark"]["draft"]) == ("c.gguf", "d.gguf")


def test_a_draft_goes_to_those_that_need_one() -> None:
    """mtp can do with the target's own layer, and a block drafter is no such layer."""
    found = chosen(adapter="fallback(dspark, ddtree, mtp)", draft="d.gguf")
    resolved = found.settings()["adapter_options"]
    drafts = [resolved[name]["draft"] for name in ("dspark", "ddtree", "mtp")]
    assert drafts == ["d.gguf", "d.gguf", ""]
    named = (("ddtree.draft", "e.gguf"),)
    found = chosen(adapter="fallback(dspark, ddtree, mtp)", draft="d.gguf", adapter_options=named)
    resolved = found.settings()["adapter_options"]
    assert (resolved["dspark"]["draft"], resolved["ddtree"]["draft"]) == ("d.gguf", "e.gguf")
    assert chosen(adapter="mtp", draft="m.gguf").settings()["adapter_options"]["mtp"]["draft"]


def test_a_flag_that_nobody_would_heed() -> None:
    options = (("dspark.tau", "4"),)
    with pytest.raises(
        OptionError, match=r"--ddtree-tau is 3\.0 and --adapter-opt dspark\.tau is 4"
    ):
        chosen(adapter="dspark", draft="d.gguf", tau=3.0, adapter_options=options)
    both = chosen(
        adapter="fallback(dspark, ddtree)", draft="d.gguf", tau=3.0, adapter_options=options
    ).settings()["adapter_options"]
    assert (both["dspark"]["tau"], both["ddtree"]["tau"]) == (4.0, 3.0)


def test_specla_is_content_with_any_draft() -> None:
    assert chosen(facts=OWN, specla=True).specla
    assert chosen(facts=TargetFacts(mtp=True), specla=True).adapter == "adaptive(mtp)"
    assert chosen(adapter="suffix", specla=True).adapter == "suffix"
    options = (("dspark.draft", "d.gguf"),)
    assert chosen(adapter="dspark", adapter_options=options, specla=True).specla


def test_the_value_is_frozen_and_its_making_changes_nothing() -> None:
    flags = SpeculationFlags(draft="d.gguf", tau=3.0, specla=True)
    before, variables = repr(flags), dict(os.environ)
    found = speculation(flags, DraftKind.DFLASH, PLAIN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.budget = 3  # type: ignore[misc]
    assert found == speculation(flags, DraftKind.DFLASH, PLAIN)
    assert (repr(flags), dict(os.environ)) == (before, variables)


def test_a_refusal_leaves_no_default_behind() -> None:
    """The tau of SpecLA once outlived the SpecLA that was refused."""
    with pytest.raises(OptionError):
        chosen(adapter="suffix", specla=True, tau=3.0)
    assert chosen(adapter="suffix").options == ()
    plain = chosen(DraftKind.DFLASH, draft="d.gguf", tau=3.0, specla=True).plainly("no trees")
    assert plain == Speculation(adapter="none", plain_because="no trees")
    assert plain.settings()["adapter_options"] == {}


def test_equal_values_may_be_given_twice() -> None:
    assert chosen(budget=7, ddtree_budget=7).budget == 7
    options = (("tau", "3"),)
    found = chosen(DraftKind.DFLASH, draft="d", tau=3.0, adapter_options=options)
    assert dict(found.options)["tau"] == "3"


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, verification.TreeVerifier),
        ({"environment": Environment(fused_commit=False)}, verification.UnfusedTreeVerifier),
        ({"fast_rollback": False}, verification.ReplayVerifier),
        ({"seq_verify": True}, verification.SequentialVerifier),
    ],
)
def test_the_verifier(flags: dict[str, Any], wanted: type) -> None:
    assert chosen(**flags).verifier is wanted


def test_kinds_of_drafts(model: Path, tmp_path: Path) -> None:
    assert open_draft(str(write_draft(tmp_path / "d"))).kind is DraftKind.DFLASH
    assert open_draft(str(write_draft(tmp_path / "s", heads=True))).kind is DraftKind.DSPARK
    assert open_draft(str(model)).kind is DraftKind.MODEL


@pytest.mark.parametrize(
    ("name", "kind"),
    [("b-mtp", DraftKind.MTP), ("a-with-mtp", DraftKind.MODEL), ("a-dspark", DraftKind.DSPARK),
     ("b-dflash-swa", DraftKind.DFLASH)],
)  # fmt: skip
def test_kinds_of_golden_drafts(shared_data: Path, name: str, kind: DraftKind) -> None:
    assert open_draft(str(shared_data / "golden_draft" / f"{name}.gguf")).kind is kind


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", ["", "--no-fast-rollback", "--seq-verify", "--specla", "--chunk 1 --no-fast-rollback"]
)
@pytest.mark.parametrize("heads", [False, True])
def test_a_draft_of_any_kind_passes_the_check(
    run: Any, model: Path, tmp_path: Path, heads: bool, option: str
) -> None:
    draft = write_draft(tmp_path / "draft.gguf", heads=heads)
    found = report(run, model, "-p", PROMPT, "-n", 12, "--check", "--draft", draft, *option.split())
    assert found["tokens"] == plainly(model, PROMPT_IDS, 12)
    assert found["check"] == {"identical": True, "positions": 12}
    assert found["settings"]["draft"] == str(draft)
    wanted = "adaptive(dspark)" if heads else "adaptive(ddtree)"
    assert found["settings"]["adapter"] == wanted
    assert found["settings"]["adapter_options"]["dspark" if heads else "ddtree"]["tau"] == 6.0


def test_the_target_as_its_own_draft_is_right_all_the_time(run: Any, model: Path) -> None:
    for option in ((), ("--no-fast-rollback",), ("--seq-verify",)):
        found = report(
            run, model, "-p", PROMPT, "-n", N, "--check", "--adapter", "chain", "--draft", model,
            *option,
        )  # fmt: skip
        assert found["check"]["identical"] and found["stats"]["mean_accept_length"] > 3


def test_what_a_draft_leaves_open_is_said_once(run: Any, model: Path, tmp_path: Path) -> None:
    changes = {"dflash.attention.sliding_window": 16}
    draft = write_draft(tmp_path / "draft.gguf", changes=changes)
    for adapter in ("auto", "ddtree"):
        shown = run("decode", model, "-p", PROMPT, "-n", 1, "--draft", draft, "--adapter", adapter)
        notes = [line for line in shown.err.splitlines() if line.startswith("note: ")]
        assert len(notes) == 1 and "no layer has a sliding window" in notes[0]


def test_rounds_without_a_fused_commit(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFLASH_SPECLA_FUSED_COMMIT", "0")
    found = report(run, model, "-p", PROMPT, "-n", 12, "--check")
    assert found["check"]["identical"] and not found["settings"]["fused_commit"]


def test_the_summary_names_draft_options_and_verification(
    run: Any, model: Path, tmp_path: Path
) -> None:
    draft = write_draft(tmp_path / "draft.gguf")
    argv = ("--draft", draft, "--ddtree-tau", 3, "--no-fast-rollback")
    shown = run("decode", model, "-p", PROMPT, "-n", 3, *argv)
    lines = dict(line.split(": ", 1) for line in shown.err.splitlines() if ": " in line)
    assert lines["adapter"] == "adaptive(ddtree), budget 22"
    assert lines["draft"] == str(draft) and lines["verification"] == "replay"
    assert "ddtree " in lines["options"] and " tau=3.0 " in lines["options"]


class OneRowBackend(NumpyBackend):
    """Verifies the root alone."""

    name = "onerow"
    verifies_trees = False

    def gdn_verify(self, *args: Any, **kwargs: Any) -> None:
        assert args[7].n_rows == 1
        super().gdn_verify(*args, **kwargs)


def test_a_backend_without_trees_decodes_plainly_and_says_so_once(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends._factories, "onerow", lambda: OneRowBackend)
    draft = write_draft(tmp_path / "draft.gguf")
    argv = ("decode", model, "-p", PROMPT, "-n", N, "--backend", "onerow", "--check")
    asked = ("--specla", "--draft", draft, "--ddtree-tau", 3)
    shown = run(*argv, *asked)
    assert (shown.code, shown.out) == (0, token_text(plainly(model, PROMPT_IDS, N)))
    warnings = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: backend 'onerow' can't verify trees; decoding plainly, without adapter "
        "'adaptive(ddtree)'"
    ]
    settings = json.loads(run(*argv, *asked, "--json").out)["settings"]
    assert (settings["adapter"], settings["adapter_options"]) == ("none", {})
    assert (settings["draft"], settings["specla"]) == (None, False)
    assert settings["plain_because"] == "backend 'onerow' can't verify trees"
    # plain decoding, or one row at a time, needs no warning
    for quiet in (("--adapter", "none"), ("--seq-verify", "--adapter", "chain", "--draft", model)):
        assert "warning" not in run(*argv, *quiet).err


def test_the_bundled_target_brings_its_drafter(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = write_draft(tmp_path / "draft.gguf", heads=True)
    monkeypatch.setattr("specla.cli.job.bundled_model", lambda: model)
    monkeypatch.setattr(draft_file, "bundled_model", lambda: model)
    monkeypatch.setattr(draft_file, "bundled_draft", lambda: draft)
    for argv in ((), (model,), ("--specla",), ("--adapter", "dspark")):
        found = report(run, *argv, "-p", PROMPT, "-n", 3, "--check")
        assert found["settings"]["draft"] == str(draft)
        assert "dspark" in found["settings"]["adapter"]
    monkeypatch.setattr(draft_file, "bundled_draft", lambda: None)
    assert report(run, "-p", PROMPT, "-n", 3)["settings"]["adapter"] == "adaptive(suffix)"


@dataclass(frozen=True)
class ForeignOptions:
    draft: str


class Foreign(Adapter):
    """Another package's adapter, whose draft is no GGUF file."""

    Options = ForeignOptions

    def propose(self, views: Any) -> list[Proposal]:
        return [Proposal() for _ in views]

    def report(self) -> dict[str, Any]:
        return {"drafts": 3, "path": Path("x")}


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    point = type("Point", (), {"name": "foreign", "value": "x:Foreign", "dist": None})()
    point.load = lambda: Foreign
    monkeypatch.setattr(adapters, "_entry_points", lambda: [point])


def test_the_draft_of_anothers_adapter_is_its_own_business(
    run: Any, model: Path, foreign: None
) -> None:
    found = report(run, model, "-p", PROMPT, "-n", 3, "--adapter", "foreign", "--draft", "x.txt")
    assert found["settings"]["adapter_options"] == {"foreign": {"draft": "x.txt"}}
    assert found["adapter_report"] == {"drafts": 3, "path": "x"}


def test_a_report_that_fails_costs_nothing_else(
    run: Any, model: Path, foreign: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> dict[str, Any]:
        raise RuntimeError("no memory of that")

    monkeypatch.setattr(Foreign, "report", fail)
    found = report(run, model, "-p", PROMPT, "-n", 3, "--adapter", "foreign", "--draft", "x")
    assert found["adapter_report"] == {"error": "RuntimeError: no memory of that"}


def test_harness_variables_alone(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPECLA, "1")
    monkeypatch.setenv(TOP_K, "2")
    draft = write_draft(tmp_path / "draft.gguf")
    found = report(run, model, "-p", PROMPT, "-n", 6, "--check", "--draft", draft)
    settings = found["settings"]
    assert settings["specla"] and settings["adapter_options"]["ddtree"]["top_k"] == 2
