"""The base of adapters with a block drafter: what it needs, what it refuses, what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.drafters import write_drafter
from support.tiny import tiny_target

from specla.adapters.base import parse_options
from specla.adapters.block import BlockAdapter, BlockOptions
from specla.adapters.none import NoneAdapter
from specla.binding import bind
from specla.core.proposal import Proposal, SequenceView
from specla.core.sampling.params import SamplingParams
from specla.core.sampling.sampler import Sampler
from specla.engine import Session
from specla.errors import FileFormatError, OptionError, UnsupportedModelError
from specla.models.dflash.chain import markov_chain
from specla.request import Request


@dataclass(frozen=True)
class ChainOptions(BlockOptions):
    depth: int = 5


class Chain(BlockAdapter):
    """The greedy chain of the block."""

    Options = ChainOptions

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self._propose(view) for view in views]

    def _propose(self, view: SequenceView) -> Proposal:
        depth = min(self.options.depth, view.budget, view.max_depth)
        if depth < 1:
            return Proposal()
        draft = self.drafter.draft(view, depth, 1)
        return Proposal.chain(*markov_chain(self.drafter, draft, depth))


def _decode(adapter: BlockAdapter | None, prompts: list[list[int]]) -> list[list[int]]:
    used = adapter if adapter is not None else NoneAdapter()
    target = tiny_target(features=(0, 2))
    texts = []
    for prompt in prompts:
        with Session(target, used, prompt, adapter_name="chain") as session:
            request = Request(30, Sampler(SamplingParams(temperature=0.0)), budget=8)
            texts.append([event.token for event in session.generate(request)])
            assert not session.stats.refused
    return texts


def test_a_text_with_drafts_is_the_plain_text(tmp_path: Path) -> None:
    path = write_drafter(tmp_path / "draft.gguf", rank=3)
    prompts = [[3, 1, 4, 1, 5, 9, 2, 6], list(range(30))]
    adapter = Chain(ChainOptions(str(path)))
    assert _decode(adapter, prompts) == _decode(None, prompts)


def test_needs(tmp_path: Path) -> None:
    path = write_drafter(tmp_path / "draft.gguf", target_layers=(2, 1))
    adapter = Chain(ChainOptions(str(path)))
    needs = adapter.needs()
    assert needs.features == (2, 1) and needs.parts and not needs.embeddings
    assert adapter.file.notes == ()
    with pytest.raises(OptionError, match="met no target"):
        _ = adapter.drafter


def test_weights_are_loaded_once_per_target(tmp_path: Path) -> None:
    path = write_drafter(tmp_path / "draft.gguf")
    adapter = Chain(ChainOptions(str(path)))
    target = tiny_target(features=(0, 2))
    bind(adapter, "chain", target)
    first = adapter.drafter
    bind(adapter, "chain", target)
    assert adapter.drafter is first
    bind(adapter, "chain", tiny_target(features=(0, 2)))
    assert adapter.drafter is not first


def test_one_adapter_on_a_large_and_a_small_target(tmp_path: Path) -> None:
    """The small one's drafter is bound last, and has no room for the text on the large one."""
    path = write_drafter(tmp_path / "draft.gguf")
    adapter = Chain(ChainOptions(str(path)))
    large, small = (tiny_target(context=c, features=(0, 2)) for c in (96, 24))
    greedy = Sampler(SamplingParams())
    with Session(large, adapter, list(range(40)), adapter_name="chain") as first:
        next(first.generate(Request(1, greedy, budget=4)))
        with Session(small, adapter, [1, 2, 3], adapter_name="chain") as second:
            text = [event.token for event in second.generate(Request(8, greedy, budget=4))]
            assert len(text) == 8 and not second.stats.refused
            text = [event.token for event in first.generate(Request(8, greedy, budget=4))]
            assert len(text) == 8
            assert first.stats.refused and "the target's context of 24" in first.stats.refusal


def test_options_from_text(tmp_path: Path) -> None:
    path = write_drafter(tmp_path / "draft.gguf", window=9, sliding=(True, False))
    given = {"draft": str(path), "window": "4", "block": "3"}
    adapter = Chain(parse_options("chain", Chain.Options, given))
    bind(adapter, "chain", tiny_target(features=(0, 2)))
    assert adapter.drafter.depth == 2
    with pytest.raises(OptionError, match="needs the option draft"):
        parse_options("chain", Chain.Options, {})


def test_refusals_come_before_anything_is_loaded(tmp_path: Path) -> None:
    path = write_drafter(tmp_path / "draft.gguf")
    with pytest.raises(OptionError, match="give --draft PATH"):
        Chain()
    with pytest.raises(OptionError, match="block size is 99"):
        Chain(ChainOptions(str(path), block=99))
    with pytest.raises(OptionError, match="sliding window is 0"):
        Chain(ChainOptions(str(path), window=0))
    with pytest.raises(FileFormatError, match="can't open"):
        Chain(ChainOptions(str(tmp_path / "missing.gguf")))
    other = write_drafter(tmp_path / "other.gguf", arch="llama")
    with pytest.raises(UnsupportedModelError, match="'llama' is no drafter"):
        Chain(ChainOptions(str(other)))
