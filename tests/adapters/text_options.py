"""Texts and options for the adapters that guess from the text alone."""

from __future__ import annotations

from collections.abc import Sequence

from adapter_views import view
from hypothesis import strategies as st

from specla.adapters.base import Adapter
from specla.adapters.ngram import NgramOptions
from specla.adapters.suffix.adapter import SuffixOptions
from specla.core.proposal import Proposal

# few letters and a drawn length, so that suffixes occur often and with several continuations
texts = st.tuples(st.integers(1, 5), st.integers(1, 80)).flatmap(
    lambda drawn: st.lists(st.integers(0, drawn[0] - 1), min_size=drawn[1], max_size=drawn[1])
)
ngram_options = st.builds(
    lambda low, more, **rest: NgramOptions(min_match=low, max_match=low + more, **rest),
    st.integers(1, 4),
    st.integers(0, 3),
    max_depth=st.integers(1, 10),
    max_children=st.integers(1, 4),
    occurrences=st.integers(1, 12),
)
suffix_options = st.builds(
    SuffixOptions,
    min_match=st.integers(1, 4),
    max_depth=st.integers(1, 10),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7]),
    min_prob=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    max_children=st.integers(1, 4),
    matches=st.integers(1, 4),
)


def propose(adapter: Adapter, tokens: Sequence[int], **limits: int) -> Proposal:
    (proposal,) = adapter.propose([view(tokens, **limits)])
    return proposal
