"""Completes phrases of the user's own: names, idioms, headings that a text is likely to use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specla.adapters.base import Adapter
from specla.core.proposal import Proposal
from specla.errors import OptionError
from specla.models.load import bundled_model, open_model


@dataclass(frozen=True)
class PhrasebookOptions:
    """phrases: text file, a phrase a line.  model: GGUF whose tokenizer reads it; it must be the
    target's. None is the model that comes with specla.  longest: most tokens of the text that are
    compared with the beginnings of phrases."""

    phrases: str
    model: str | None = None
    longest: int = 16


class PhrasebookAdapter(Adapter):
    """Proposes how the phrases go on whose first tokens are the last ones of the text.

    All continuations merge into one tree; a longer match comes first, then the order of the file.
    Nothing is kept per sequence: the text says it all.
    """

    Options = PhrasebookOptions

    def bind(self, target):
        model = open_model(self.options.model or bundled_model())
        if model.config.vocabulary != target.vocabulary:
            raise OptionError(
                f"{model.path.name} has another vocabulary than the target; "
                f"give the target's own file: --adapter-opt model=FILE"
            )
        try:
            lines = Path(self.options.phrases).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"phrases {self.options.phrases!r} can't be read: {error}") from error
        self.endings = {}  # what may follow the first tokens of a phrase
        for line in filter(None, map(str.strip, lines)):
            for text in (line, " " + line):  # at the start of a text, and behind a word
                phrase = tuple(model.tokenizer.encode(text, parse_special=False))
                for n in range(1, len(phrase)):
                    endings = self.endings.setdefault(phrase[:n], [])
                    if phrase[n:] not in endings:
                        endings.append(phrase[n:])

    def propose(self, views):
        return [self._tree(view) for view in views]

    def _tree(self, view):
        tokens, parents, places = [], [], {}
        last = tuple(view.tokens[-self.options.longest :])
        for start in range(len(last)):
            for ending in self.endings.get(last[start:], ()):
                parent = -1
                for token in ending[: view.max_depth]:
                    if (parent, token) not in places:
                        if len(tokens) == view.budget:
                            return Proposal(tokens, parents)
                        places[parent, token] = len(tokens)
                        tokens.append(token)
                        parents.append(parent)
                    parent = places[parent, token]
        return Proposal(tokens, parents)
