"""Chat templates: Jinja programs from model files, rendered in a sandbox.

The environment follows what templates written for Hugging Face models expect. Templates are
untrusted: they see plain data only, can't reach Python's internals, can't change what they are
given, and work on a budget (meter.py): one that loops for ever, or builds a huge text or list by
whatever means, ends with an error after about a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from specla.models.tokenizer.errors import ChatTemplateError, one_line

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_RENDERED = 64 * 1024 * 1024
"""Most characters a template may write."""
MAX_SOURCE = 48 * 1024
"""Longest template, in characters: compiling takes most of a second then. Published models have
up to about 20,000."""
_LONGEST_PATTERN = 200
_WIDEST_INDENT = 64
_UNLIMITED = 1 << 62


class ChatTemplate:
    """A compiled chat template.

    source: Jinja text. name: what errors call it. preset: variables that `render` may override,
    such as `bos_token`. clock: the time that `strftime_now` shows.

    Raises ChatTemplateError if the source is not valid.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "chat template",
        preset: Mapping[str, object] = MappingProxyType({}),
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        from jinja2 import TemplateSyntaxError

        from specla.models.tokenizer.meter import Meter, metered
        from specla.models.tokenizer.sandbox import make_environment

        self._name = name
        self._preset = dict(preset)
        if len(source) > MAX_SOURCE:
            raise self._error(f"has {len(source)} characters, the limit is {MAX_SOURCE}")
        environment = make_environment({"tojson": _tojson})
        _add_helpers(environment, clock)
        try:
            with metered(Meter()):  # Jinja computes constants at once
                self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise self._error(f"line {error.lineno}: {error.message}") from None
        except Exception as error:
            raise self._error(error) from None

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """The prompt text of a conversation.

        messages: mappings with `role`, `content` and whatever else the template reads; keys whose
        value is None are left out, as templates expect. add_generation_prompt: open the
        assistant's turn at the end. kwargs: further variables, such as `tools` (list of JSON
        schemas), `documents` or `enable_thinking`. All values must be plain data: None, booleans,
        numbers, strings, lists and mappings.

        Raises ChatTemplateError when the data is not plain, or when the template fails, refuses
        the conversation, does something forbidden, does more than a budget that grows with what it
        is given, or writes more than `MAX_RENDERED` characters.
        """
        variables = {"tools": None, "documents": None, **self._preset, **kwargs}
        try:
            plain = {key: self._plain(value, key) for key, value in variables.items()}
            plain["messages"] = self._messages(messages)
            plain["add_generation_prompt"] = bool(add_generation_prompt)
            return self._run(plain)
        except ChatTemplateError:
            raise
        except Exception as error:
            raise self._error(error) from None

    def _run(self, variables: Mapping[str, object]) -> str:
        from specla.models.tokenizer.meter import BUDGET, PER_INPUT, Meter, metered

        given = Meter(_UNLIMITED).weigh(variables)
        pieces = []
        size = 0
        with metered(Meter(BUDGET + PER_INPUT * given)):
            for piece in self._template.generate(variables):
                size += len(piece)
                if size > MAX_RENDERED:
                    raise self._error(f"writes more than {MAX_RENDERED} characters")
                pieces.append(piece)
        return "".join(pieces)

    def _messages(self, messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        if not isinstance(messages, (list, tuple)):
            raise self._error(f"messages are a {type(messages).__name__}: give a list")
        result = []
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping):
                kind = type(message).__name__
                raise self._error(f"message {index} is a {kind}: give a mapping with a role")
            result.append(
                {
                    str(key): self._plain(value, f"messages[{index}].{key}")
                    for key, value in message.items()
                    if value is not None
                }
            )
        return result

    def _plain(self, value: object, where: str) -> Any:
        """A deep copy made of exact built-in types, so that no method of an object leaks in."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, Mapping):
            return {self._plain(k, where): self._plain(v, where) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(item, where) for item in value]
        kind = type(value).__name__
        raise self._error(f"{where} holds a {kind}: give text, numbers, lists and mappings only")

    def _error(self, problem: object) -> ChatTemplateError:
        return ChatTemplateError(f"{self._name}: {one_line(problem)}")


def _add_helpers(environment: ImmutableSandboxedEnvironment, clock: Callable[[], datetime]) -> None:
    from jinja2 import TemplateError

    def raise_exception(message: object) -> None:
        raise TemplateError(str(message))

    def strftime_now(pattern: str) -> str:
        if len(pattern) > _LONGEST_PATTERN:
            raise TemplateError(f"a pattern of {len(pattern)} characters is no time")
        return clock().strftime(pattern)

    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML and sorts keys, which would change prompts.
    from specla.models.tokenizer.meter import CALL, current

    if indent is None and separators is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
    depth = indent if isinstance(indent, int) else len(indent or "")
    if depth > _WIDEST_INDENT:
        raise ValueError(f"an indentation of {depth} characters; {_WIDEST_INDENT} are possible")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    pieces = []
    # piece by piece: what indentation makes of a value is known only then
    for piece in encoder.iterencode(value):
        current().spend(CALL + len(piece))
        pieces.append(piece)
    return "".join(pieces)
