"""Chat templates against transformers' own rendering, letter by letter."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from chat_cases import CONVERSATIONS

from specla.models.tokenizer import ChatTemplate

HELPERS = {
    "tojson": "{{ tools|tojson }}\n{{ tools|tojson(indent=2) }}\n"
    "{{ tools|tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}",
    "blocks": "a\n  {% if true %}\n  b\n  {% endif %}\n{#- c #}\n  d {{- ' e' }}\n\n",
    "loops": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
    "{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %};"
    "{% endfor %}",
    "namespace": "{% set ns = namespace(n=0, text='') %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% set ns.text = ns.text ~ m.role * 2 %}{% endfor %}{{ ns.n }}"
    "{{ ns.text }}{{ dict(a=1)|tojson }}{{ missing }}{{ tools is none }}{{ documents is none }}",
    "strings": "{{ 'a,b'.split(',')|join('-') }}{{ '%s-%d'|format('x', 3) }}{{ 'é'|upper }}"
    "{{ messages[0].content|string|trim }}{{ messages|map(attribute='role')|list }}",
}


def theirs(source: str, case: dict[str, Any]) -> str:
    utils = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="needs transformers"
    )
    arguments = {"add_generation_prompt": True, **deepcopy(case)}
    # As its tokenizers do before they render.
    messages = utils._normalize_chat_messages(arguments.pop("messages"))
    rendered: list[str] = utils.render_jinja_template(
        [messages], chat_template=source, **arguments
    )[0]
    return rendered[0]


@pytest.mark.oracle
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_qwen_template(shared_data: Path, name: str) -> None:
    source = (shared_data / "Qwen3.5-4B.jinja").read_text(encoding="utf-8")
    case = CONVERSATIONS[name]
    before = deepcopy(case)
    assert ChatTemplate(source).render(**case) == theirs(source, case)
    assert case == before


@pytest.mark.oracle
@pytest.mark.parametrize("helper", HELPERS)
def test_helpers(helper: str) -> None:
    source = HELPERS[helper]
    for case in CONVERSATIONS.values():
        assert ChatTemplate(source).render(**case) == theirs(source, case)
