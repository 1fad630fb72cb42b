"""Chat templates: seeds, and snippets that a mutation puts together."""

from __future__ import annotations

from specla.models.tokenizer.chat import ChatTemplate
from tools.fuzz_readers.seeds import TEMPLATE

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi\n there"}, 1, 2.5, True]},
    {"role": "assistant", "content": "a</think>b", "tool_calls": [{"name": "f", "arguments": {}}]},
]
SEEDS = (
    TEMPLATE,
    "{% set ns = namespace(s='x', l=[1]) %}{% for i in range(9) %}{% set ns.s = ns.s ~ ns.s %}"
    "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.s }}{{ ns.l }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content|tojson(indent=2) }}"
    "{% else %}none{% endfor %}",
    "{% set x %}{{ 'a' * 10 }}{% endset %}{{ x|replace('a', 'bc')|upper|trim }}{{ x[1:-1] }}",
    "{{ '%s %5d' % ('a', 1) }}{{ '{:>5}'.format('b') }}{{ [3, 1, 2]|sort|join(', ') }}",
    "{{ messages|map(attribute='role')|select('eq', 'user')|list }}{{ 'a,b'.split(',') }}",
    "{% for x in [1, [2]] recursive %}{% if x is iterable %}{{ loop(x) }}{% endif %}{% endfor %}",
    "{{ tools is none }}{{ bos_token }}{{ strftime_now('%d %b %Y') }}{{ raise_exception('no') }}",
    "{% call f() %}x{% endcall %}{% filter upper %}a{% endfilter %}{{ dict(a=1).items()|list }}",
)
SNIPPETS = (
    "{% for i in range(99999) %}", "{% endfor %}", "{% if x %}", "{% endif %}", "{{ ", " }}",
    "{% set s = ", " %}", "{% macro f(a) %}", "{% endmacro %}", "{{ f(f) }}", "{% set x %}",
    "{% endset %}", "ns.s", "ns.l", "ns", "messages", "messages[0]", "loop", "self", "caller()",
    "range(99999)", "'a'", "'\\n'", "1", "-1", "10 ** 9", "99999", "1e308", "[]", "{}", "()",
    "none", "[ns.l] * 1000", "'ab' * 99999", "('ab' * 99999)", " ~ ", " + ", " * ", " % ", " ** ",
    " // ", " == ", " in ", " < ", " is eq ", " and ", " not ", "[1:]", "[::-1]", "|list",
    "|join(s)", "|replace('', 'a' * 999)", "|center(999999)", "|indent(99999)", "|tojson",
    "|tojson(indent=99)", "|sort", "|unique|list", "|map('upper')|list",
    "|map(attribute='x')|list", "|batch(9999, 0)|list", "|slice(9999)|list", "|round(99)", "|int",
    "|float", "|string", "|length", "|sum(start=[])", "|selectattr('a', 'in', ns.l)|list",
    "|groupby('role')", "|dictsort", "|format(1)", "|first", "|last", "|reverse|list",
    "|truncate(9)", "|urlencode", "|escape", "|safe", "|title", "|trim(s)", "|wordcount",
    "|random", "|filesizeformat", "|attr('upper')", "|default(s)", "|max", "|items|list",
    ".ljust(9999999)", ".zfill(9999999)", ".expandtabs(99999)", ".format(1, 2)", ".join(s)",
    ".split()", ".replace('a', s)", ".strip(s)", ".splitlines()", ".upper()", ".encode()",
    ".items()", ".get('a')", ".__class__", ".mro()", "'{:9999}'.format(1)", "'%9999d' % 1",
    "namespace(a=1)", "cycler(1, 2)", "joiner()", "dict(a=s)", "lipsum(9)", "{% break %}",
    "{% continue %}", "{% generation %}", "{% endgeneration %}", "{% block b %}", "{% endblock %}",
    "{{ self.b() }}", "{# ", " #}", "{% raw %}", "{% endraw %}", "{%- ", " -%}",
    "{% include 'a' %}", "{% call f() %}", "{% endcall %}", "{% filter upper %}",
    "{% endfilter %}", "{% with a = s %}", "{% endwith %}", "{% autoescape true %}",
    "{% endautoescape %}", "\x00", "\ud7ff", "é" * 50,
)  # fmt: skip


def render(source: str) -> str:
    return ChatTemplate(source, name="t", preset={"bos_token": "<s>"}).render(CONVERSATION)
