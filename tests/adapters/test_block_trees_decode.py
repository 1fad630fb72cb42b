"""ddtree and dspark in the decode loop, with a random drafter on a tiny random target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.drafters import write_drafter
from support.tiny import VOCAB, tiny_target

from specla.adapters.base import Adapter
from specla.adapters.block import BlockAdapter
from specla.adapters.ddtree import DdtreeAdapter
from specla.adapters.dspark import DsparkAdapter
from specla.check import plain_decode
from specla.core.proposal import Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import OptionError
from specla.models.qwen35.target import Qwen35Target

PROMPT = (3, 1, 4, 1, 5)
OTHER = (9, 2, 6)
COUNT = 12

Setting = tuple[type[BlockAdapter], dict[str, Any]]
SETTINGS: dict[str, Setting] = {
    "ddtree": (DdtreeAdapter, {}),
    "ddtree seeded": (DdtreeAdapter, {"chain_seed": True, "temperature": 0.7}),
    "ddtree conditional": (DdtreeAdapter, {"conditional": True}),
    "dspark tree": (DsparkAdapter, {"shortlist": 8}),
    "dspark whole vocabulary": (DsparkAdapter, {"shortlist": 0}),
    "dspark spine": (DsparkAdapter, {"bias": "spine", "confidence": True}),
    "dspark chain": (DsparkAdapter, {"shape": "chain", "p_min": 0.2}),
}


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    return write_drafter(path, rank=4, confidence=True, anchor=True)


@pytest.fixture(scope="module")
def target(backend_name: str) -> Qwen35Target:
    return tiny_target(context=64, max_nodes=33, features=(0, 2))


def adapter(setting: Setting, draft: Path) -> BlockAdapter:
    kind, options = setting
    return kind(kind.Options(str(draft), **options))


class Recorded(Adapter):
    """Another adapter, and all that it proposed, by sequence."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__()
        self.inner = inner
        self.needs, self.bind, self.close = inner.needs, inner.bind, inner.close
        self.proposals: dict[int, list[Proposal]] = {}

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        made = self.inner.propose(views)
        for view, proposal in zip(views, made, strict=True):
            self.proposals.setdefault(view.key, []).append(proposal)
        return made


def tokens(session: Session, request: Request) -> Iterator[int]:
    return (event.token for event in session.generate(request))


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_the_text_is_that_of_plain_decoding(
    setting: Setting, draft: Path, target: Qwen35Target
) -> None:
    sampler = Sampler(SamplingParams(temperature=1.0, seed=7))
    expected, _ = plain_decode(target, PROMPT, COUNT, sampler)
    with Session(target, adapter(setting, draft), PROMPT) as session:
        assert list(tokens(session, Request(COUNT, sampler))) == expected.tokens
        assert session.stats.refusal is None
        assert session.stats.adapter_error is None
        # all but the last round had candidates
        assert session.stats.rows > session.stats.rounds


@pytest.mark.parametrize("name", ["ddtree", "ddtree conditional", "dspark tree"])
def test_two_sequences_of_one_adapter_know_nothing_of_each_other(
    name: str, draft: Path, target: Qwen35Target
) -> None:
    setting, request = SETTINGS[name], Request(8, Sampler(SamplingParams()), budget=8)
    alone = []
    for prompt in (PROMPT, OTHER):
        recorded = Recorded(adapter(setting, draft))
        with Session(target, recorded, prompt) as session:
            list(tokens(session, request))
        alone += recorded.proposals.values()
    recorded = Recorded(adapter(setting, draft))
    with Session(target, recorded, PROMPT) as one, Session(target, recorded, OTHER) as two:
        for _ in zip(tokens(one, request), tokens(two, request), strict=True):
            pass
    assert list(recorded.proposals.values()) == alone


def test_a_drafter_without_a_markov_head_is_refused(tmp_path: Path, target: Qwen35Target) -> None:
    bare = write_drafter(tmp_path / "bare.gguf")
    with pytest.raises(OptionError, match=r"bare.gguf' has no Markov head; use --adapter ddtree"):
        Session(target, DsparkAdapter(DsparkAdapter.Options(str(bare))), PROMPT)
    plain = DdtreeAdapter(DdtreeAdapter.Options(str(bare), top_k=VOCAB + 5))
    with Session(target, plain, PROMPT) as session:
        assert len(list(tokens(session, Request(3, Sampler(SamplingParams()))))) == 3
