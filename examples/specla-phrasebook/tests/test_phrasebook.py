"""The adapter keeps its contract, is worth something, and says what is wrong with its options."""

from pathlib import Path

import pytest
from specla_phrasebook import PhrasebookAdapter, PhrasebookOptions

from specla.adapters.base import create_adapter
from specla.core.proposal import Proposal
from specla.errors import OptionError
from specla.testing import ConformanceError, check_adapter

PHRASES = str(Path(__file__).parents[1] / "phrases.txt")
PROMPT = "Once upon a time"


def make():
    return PhrasebookAdapter(PhrasebookOptions(phrases=PHRASES))


def test_it_keeps_the_contract():
    report = check_adapter(make, prompts=[PROMPT], tokens=8)
    print(report.text())
    assert max(figures.accept_length for figures in report.figures) > 1.2


def test_it_is_found_by_name():
    assert isinstance(create_adapter("phrasebook", {"phrases": PHRASES}), PhrasebookAdapter)


@pytest.mark.parametrize("options", [{}, {"phrases": PHRASES, "longest": "many"}])
def test_bad_options(options):
    with pytest.raises(OptionError):
        create_adapter("phrasebook", options)


def test_a_missing_file_is_said_by_name():
    options = PhrasebookOptions(phrases="nowhere.txt")
    with pytest.raises(ConformanceError, match=r"'nowhere\.txt' can't be read"):
        check_adapter(lambda: PhrasebookAdapter(options), only="validation")


class Stubborn(PhrasebookAdapter):
    """Proposes the whole phrase, whatever the budget is: the kit must notice."""

    def _tree(self, view):
        last = (view.root,)
        return Proposal.chain(self.endings.get(last, [()])[0])


def test_the_kit_notices_a_defect():
    with pytest.raises(ConformanceError, match=r"\[validation\] expected a valid tree at budget"):
        check_adapter(
            lambda: Stubborn(PhrasebookOptions(phrases=PHRASES)),
            prompts=["a little girl named Lily loved to play with her mom and"],
            only="validation",
        )
