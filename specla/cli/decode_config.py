"""Every setting of `specla decode` in one value, complete and checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specla.backends import backends
from specla.backends.options import MOST_THREADS
from specla.cli.draft_file import check_early
from specla.cli.speculation_flags import SpeculationFlags, check_range
from specla.core.sampling import SamplingParams
from specla.errors import OptionError

DEFAULT_CONTEXT = 4096
MAX_CHUNK = 4096
MAX_CONTEXT = 1 << 24
MAX_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class DecodeConfig:
    """One run of `specla decode`.

    model: GGUF file, None for the bundled one.  text, file: the prompt, exactly one of them; the
    file "-" is standard input.  chat: the prompt is a user's message, ``system`` the one before
    it.  special: names of special tokens in the prompt stand for the tokens.  context: positions,
    None for the model's own up to 4096.  threads, device: None for the default.  flags: all that
    concerns speculation.  Other fields as the options of the same name.

    Raises OptionError, one line, for anything that can't work whatever the model is.
    """

    text: str | None = None
    file: str | None = None
    model: Path | None = None
    chat: bool = False
    system: str | None = None
    special: bool = False
    max_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    flags: SpeculationFlags = field(default_factory=SpeculationFlags)
    backend: str = "auto"
    threads: int | None = None
    device: str | None = None
    context: int | None = None
    chunk: int = 512
    kv: str = "f16"
    check: bool = False
    json: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        self._check_prompt()
        check_range("--max-tokens", self.max_tokens, 0, MAX_TOKENS)
        check_range("--chunk", self.chunk, 1, MAX_CHUNK)
        check_threads(self.threads)
        if self.device == "":
            raise OptionError("--device is empty; give a device, such as cuda:0, or leave it out")
        if self.context is not None:
            check_range("--ctx", self.context, 2, MAX_CONTEXT)
        if self.kv not in ("f16", "f32"):
            raise OptionError(f"--kv is {self.kv!r}; use f16 or f32")
        self._check_stops()
        if self.backend != "auto":
            backends.origin(self.backend)
        check_early(self.flags, self.model)

    def _check_prompt(self) -> None:
        if self.text is not None and self.file is not None:
            raise OptionError("--prompt and --file are both given; give one prompt")
        if self.text is None and self.file is None:
            raise OptionError(
                "no prompt; give --prompt TEXT, --file FILE, or a text on standard input"
            )
        if self.system is not None and not self.chat:
            raise OptionError("--system needs --chat; a raw prompt has no roles")

    def _check_stops(self) -> None:
        for stop in self.stop:
            if not stop:
                raise OptionError("--stop is empty and would stop at once; leave it out")
            if any("\ud800" <= letter <= "\udfff" for letter in stop):
                raise OptionError(f"--stop is {stop!r}, which is not UTF-8; give valid text")

    def settings(self) -> dict[str, Any]:
        """What decides the text and the speed, as JSON-able values."""
        sampling = self.sampling
        return {
            "chat": self.chat,
            "max_tokens": self.max_tokens,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "seed": sampling.seed,
            "repeat_penalty": sampling.repetition_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "presence_penalty": sampling.presence_penalty,
            "penalty_window": sampling.penalty_window,
            "logit_bias": [list(pair) for pair in _pairs(sampling)],
            "stop": list(self.stop),
            "chunk": self.chunk,
            "kv": self.kv,
        }

    @property
    def budget(self) -> int:
        """Most candidates per round."""
        return self.flags.most_candidates

    @property
    def biased_tokens(self) -> tuple[int, ...]:
        """Token ids that --logit-bias names."""
        return tuple(token for token, _ in _pairs(self.sampling))


def check_threads(threads: int | None) -> None:
    """Raise OptionError for a number of threads that can't be; None leaves it open."""
    if threads is not None:
        check_range("--threads", threads, 1, MOST_THREADS)


def key_values(option: str, given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """``KEY=VALUE`` texts as pairs. Raises OptionError for another form or a key given twice."""
    pairs: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise OptionError(f"{option} is {text!r}; give it as KEY=VALUE")
        if key in pairs:
            raise OptionError(f"{option} names {key} twice; give each key once")
        pairs[key] = value
    return tuple(pairs.items())


def logit_bias(given: tuple[str, ...]) -> tuple[tuple[int, float], ...]:
    """``ID=VALUE`` texts as pairs. Raises OptionError for anything but an integer and a number."""
    pairs = []
    for key, value in key_values("--logit-bias", given):
        try:
            pairs.append((int(key), float(value)))
        except ValueError:
            raise OptionError(
                f"--logit-bias is {f'{key}={value}'!r}; give a token id and a number: ID=VALUE"
            ) from None
    return tuple(pairs)


def _pairs(sampling: SamplingParams) -> tuple[tuple[int, float], ...]:
    # SamplingParams stores pairs, whatever it was given
    return tuple((int(token), float(bias)) for token, bias in sampling.logit_bias)  # type: ignore[misc]
