"""Chat templates: fixed expectations, the sandbox, errors."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from chat_cases import CONVERSATIONS
from hypothesis import given
from hypothesis import strategies as st

from specla.models.tokenizer import ChatTemplate, ChatTemplateError, chat

USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def qwen(shared_data: Path) -> ChatTemplate:
    return ChatTemplate((shared_data / "Qwen3.5-4B.jinja").read_text(encoding="utf-8"))


EXPECTED = {
    "one question": "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "system": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat's 2+2?<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n",
    "no thinking": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "no prompt": "<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\nHello <b>you</b> & 世界<|im_end|>\n",
    "reasoning": "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n"
    "<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n<think>\n",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_qwen_conversations(qwen: ChatTemplate, name: str) -> None:
    assert qwen.render(**CONVERSATIONS[name]) == EXPECTED[name]


def test_qwen_tools(qwen: ChatTemplate) -> None:
    text = qwen.render(**CONVERSATIONS["tools"])
    assert text.startswith("<|im_start|>system\n# Tools\n\nYou have access")
    # JSON as it was given: key order kept, no HTML escapes, no ASCII escapes.
    tool = (
        '\n{"type": "function", "function": {"name": "weather", "description": '
        '"Look up <the> weather & \'more\' in Zürich", "parameters": {"type": "object", '
        '"properties": {"city": {"type": "string"}, "a": {}}}}}'
    )
    assert f"<tools>{tool}{tool}\n</tools>" in text
    assert text.endswith(
        "</IMPORTANT>\n\nUse tools.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
        "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n"
        "</function>\n</tool_call>\n"
        '<tool_call>\n<function=lookup>\n<parameter=keys>\n["é", 1, null]\n</parameter>\n'
        '<parameter=deep>\n{"b": 1, "a": "<x>"}\n</parameter>\n<parameter=n>\n2\n</parameter>\n'
        "</function>\n</tool_call><|im_end|>\n<|im_start|>user\n"
        "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nfound\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "No messages provided"),
        ([*USER, {"role": "critic", "content": "x"}], "Unexpected message role"),
        ([{"role": "user", "content": 7}], "Unexpected content type"),
        ([*USER, {"role": "system", "content": "late"}], "System message must be at the begin"),
    ],
)
def test_qwen_refuses(qwen: ChatTemplate, messages: list[Any], words: str) -> None:
    with pytest.raises(ChatTemplateError, match=words):
        qwen.render(messages)


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source).render(USER, **variables)


def test_white_space_rules() -> None:
    source = "a\n  {% if true %}\n  b\n  {% endif %}\n{#- c #}\n  d\n"
    assert render(source) == "a\n  b\n  d"


def test_loop_controls_and_generation_blocks() -> None:
    loop = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
    loop += "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert render(loop) == "023"
    block = "{% set x = 1 %}{% generation %}[{% set x = 2 %}{{ x }}]{% endgeneration %}{{ x }}"
    assert render(block) == "[2]1"


def test_clock_and_preset() -> None:
    source = "{{ strftime_now('%d %b %Y') }} {{ bos_token }} {{ tools is none }}"
    template = ChatTemplate(
        source, preset={"bos_token": "<s>"}, clock=lambda: datetime(2024, 2, 29, 12)
    )
    assert template.render(USER) == "29 Feb 2024 <s> True"
    assert template.render(USER, bos_token="<x>", tools=[]) == "29 Feb 2024 <x> False"


def test_none_is_a_missing_key() -> None:
    source = "{{ messages[0].content is defined }}{{ messages[0].x is defined }}"
    template = ChatTemplate(source)
    assert template.render([{"role": "user", "content": None, "x": 0}]) == "FalseTrue"


def test_caller_data_is_not_changed_and_not_escaped() -> None:
    class Text(str):
        def secret(self) -> str:
            return "leaked"

    message = {"role": "user", "content": Text("<b>&")}
    assert ChatTemplate("{{ messages[0].content }}").render([message]) == "<b>&"
    source = "{{ messages[0].content.secret is defined }}"
    assert ChatTemplate(source).render([message]) == "False"


HOSTILE = {
    "class": "{{ ''.__class__ }}",
    "class of messages": "{{ messages.__class__.__mro__ }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "format": "{{ '{0.__class__}'.format('') }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "clock internals": "{{ strftime_now.__closure__ }}",
    "loop internals": "{{ cycler.__init__.__globals__ }}",
    "change messages": "{{ messages.append(1) }}",
    "change a message": "{{ messages[0].update({'a': 1}) }}",
    "range": "{% for i in range(100001) %}{% endfor %}",
    "huge text": "{{ 'x' * 10000000000 }}",
    "huge text, other way": "{% set n = 10000000000 %}{{ n * 'x' }}",
    "huge list": "{{ ([1] * 1000000000)|length }}",
    "huge power": "{{ 9 ** 9999999 }}",
    "namespace": "{% set ns = namespace(a=1) %}{% set ns.__class__ = 1 %}",
    "namespace at birth": "{% set ns = namespace(__init__=1) %}",
    "include": "{% include 'x' %}",
    "import": "{% import 'os' as os %}",
    "undefined call": "{{ nothing() }}",
    "undefined attribute": "{{ nothing.at.all }}",
    "wrong types": "{{ 1 + 'a' }}",
    "division": "{{ 1 / 0 }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "no json": "{{ range(3)|tojson }}",
    "raise": "{{ raise_exception('no\nway') }}",
    "raise nothing": "{{ raise_exception('') }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_get_one_line(name: str) -> None:
    template = ChatTemplate(HOSTILE[name], name="some.gguf: chat template")
    with pytest.raises(ChatTemplateError) as caught:
        template.render(USER)
    message = str(caught.value)
    assert message.startswith("some.gguf: chat template: ")
    assert "\n" not in message and len(message) < 400


BROKEN = ["{% if %}", "{{", "{% for x in %}", "{% endif %}", "{{ a b }}", "{% nothing %}"]
BROKEN += ["{{ x|nothing }}", "{% generation %}", "{% break %}", "{{ " + "(" * 5000 + " }}"]
BROKEN += ["{% if a %}" * 200 + "{% endif %}" * 200]


@pytest.mark.parametrize("source", BROKEN, ids=range(len(BROKEN)))
def test_broken_templates_get_one_line(source: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate(source, name="x").render(USER)
    assert str(caught.value).startswith("x: ") and "\n" not in str(caught.value)


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_RENDERED", 1000)
    assert len(render("{% for i in range(100) %}{{ 'x' * 10 }}{% endfor %}")) == 1000
    with pytest.raises(ChatTemplateError, match="more than 1000 characters"):
        render("{% for i in range(101) %}{{ 'x' * 10 }}{% endfor %}")


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("Hi", "messages are a str"),
        (None, "messages are a NoneType"),
        (["Hi"], "message 0 is a str"),
        ([USER[0], 3], "message 1 is a int"),
        ([{"role": "user", "content": b"x"}], r"messages\[0\].content holds a bytes"),
        ([{"role": "user", "content": [{"image": object()}]}], "holds a object"),
        ([{"role": "user", "content": CYCLE}], "recursion"),
    ],
)
def test_bad_messages(messages: Any, words: str) -> None:
    with pytest.raises(ChatTemplateError, match=words):
        ChatTemplate("{{ messages }}").render(messages)


def test_bad_variables() -> None:
    with pytest.raises(ChatTemplateError, match="tools holds a function"):
        ChatTemplate("").render(USER, tools=[render])


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_json_is_pythons(value: Any) -> None:
    import json

    assert render("{{ x|tojson }}", x=value) == json.dumps(value, ensure_ascii=False)


@given(st.text())
def test_any_text_as_template_renders_or_gets_one_line(source: str) -> None:
    try:
        assert isinstance(render("{{ 1 }}{% if x %}" + source + "{% endif %}"), str)
    except ChatTemplateError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'Role: {} in 2024, {:>3}'.format('x', 1) }}", "Role: x in 2024,   1"),
        ("{{ 'a</think>b</think>c'.rsplit('</think>', maxsplit=1)[-1] }}", "c"),
        ("{{ 'a</think>b'.rfind('</think>') }}", "1"),
        ("{{ range(5, -5, -3)|list }}{{ range(9007199254740993)[:0]|length }}", None),
        ("{{ range(5, -5, -3)|list }}", "[5, 2, -1, -4]"),
        ("{{ '\\t'.expandtabs(tabsize=3) }}", "   "),
    ],
)
def test_what_is_metered_still_works(source: str, text: str | None) -> None:
    template = ChatTemplate(source)
    if text is None:
        with pytest.raises(ChatTemplateError):
            template.render([])
    else:
        assert template.render([]) == text
