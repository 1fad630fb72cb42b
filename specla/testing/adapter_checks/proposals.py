"""What is proposed: valid trees, the same for the same text."""

from __future__ import annotations

from specla.testing.adapter_checks import adapter_checks
from specla.testing.errors import ConformanceError, NotApplicable
from specla.testing.stage import Life, Stage, play, require_same
from specla.testing.subject import Subject

BUDGETS = (0, 1, 2, 7, 22, 64)
DEPTHS = (0, 1, 3, 64)


@adapter_checks.add("validation")
def valid_trees(subject: Subject) -> str:
    """Whatever budget and max_depth are, a proposal is a valid tree of at most so many candidates:
    parents first, siblings distinct, tokens in the vocabulary, log-probabilities at most 0."""
    stage, count = Stage(subject, subject.bound(), "validation"), 0
    for prompt in subject.prompts:
        text = stage.open(Life(prompt))
        for _ in range(2):
            for depth in DEPTHS:
                for budget in BUDGETS:
                    stage.propose([stage.view(text, budget, depth)])
                    count += 1
            stage.round([text])
        stage.close(text)
    return f"{count} proposals at budgets {BUDGETS}, depths {DEPTHS}"


@adapter_checks.add("determinism")
def two_runs_are_equal(subject: Subject) -> str:
    """Two adapters that see the same texts propose the same, unless ``deterministic`` is False."""
    require_deterministic(subject)
    runs = []
    for _ in range(2):
        stage = Stage(subject, subject.bound(), "determinism")
        lives = [Life(prompt) for prompt in subject.three[:2]]
        runs.append(play(stage, lives, [[0], [0, 1], [1], [0, 1], [0], [1, 0]]))
    for one, other in zip(*runs, strict=True):
        require_same(
            "determinism",
            one.proposals,
            other.proposals,
            "a second run to propose the same",
            "Seed what is random with the text, order what is iterated; or declare "
            "deterministic = False.",
        )
    return f"{sum(len(t.proposals) for t in runs[0])} rounds twice"


@adapter_checks.add("inputs")
def inputs_are_left_alone(subject: Subject) -> str:
    """Features are the target's own memory: an adapter reads them and never writes."""
    layers = subject.target.options.features
    if not layers:
        raise NotApplicable("the adapter needs no features")
    stage = Stage(subject, subject.bound(), "inputs")
    text = stage.open(Life(subject.prompts[0]))
    for _ in range(6):
        stage.round([text])
    target, length = stage.target, len(text.tokens) - 1
    other = target.open()
    for token in text.tokens[:-1]:
        target.prefill([(other, [token])])
    download = target.backend.download
    found = download(target.features(text.sequence, 0, length))
    wanted = download(target.features(other, 0, length))
    target.close(other)
    stage.close(text)
    if found.tobytes() != wanted.tobytes():
        raise ConformanceError(
            "inputs",
            expected="features to be what the target wrote",
            found="that they were changed",
            remedy="Copy what view.features gives before working in place.",
        )
    return f"features of layers {layers}, {length} positions"


def require_deterministic(subject: Subject) -> None:
    """Raises NotApplicable for an adapter that says it isn't."""
    if not subject.deterministic:
        raise NotApplicable("the adapter declares deterministic = False")
