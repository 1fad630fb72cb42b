"""What generated code may contain: nothing that rounds differently from the contract.

PTX. Float multiply-adds are refused (but for bfloat16 products on sm_80, which PTX writes as a
fused multiply-add of -0), and so are approximate and flushing instructions. ``add``, ``sub``,
``mul`` must carry ``.rn``: PTX promises not to contract those.

AMDGCN has no division and no exact square root: both are expanded into estimates and fused
multiply-adds, whose last steps round correctly.

* Division: ``v_div_scale`` of both operands, ``v_rcp`` of the scaled divisor, Newton steps by
  ``v_fma``/``v_fmac``, ``v_div_fmas``, ``v_div_fixup``.
* Square root, as of Triton 3.9: arguments below 2^-96 are scaled by 2^32, ``v_sqrt`` (1 ulp), the
  residuals of both neighbours by ``v_fma`` choose among the three; scaled back; 0, inf by
  ``v_cmp_class``.
* Square root, Triton 3.6: ``v_rsq``, Goldschmidt steps by ``v_fma``, the last one on the residual;
  0, inf by ``v_cmp_class``. Nothing is scaled, so it holds for normal arguments only. The contract
  takes roots of ``mean + eps`` alone, which is such a number.

* Product of a float16: ``v_fma_mix`` of a converted half, adding -0, which changes nothing.

* Integer division: ``v_rcp`` of an integer made a float, times a constant, back to an integer by
  ``v_cvt_u32``; integer steps correct it.

So estimates and fused multiply-adds are right inside such a sequence and nowhere else. It is found
by following data: what comes from an estimate is *unfinished* until ``v_div_fixup``, or the
``v_cndmask`` on a ``v_cmp_class``, makes a result of it. A fused multiply-add must have an
unfinished operand; a reciprocal must be of a scaled divisor; an unfinished value must not leave the
sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_FORBIDDEN_PTX = re.compile(
    r"\.(?:approx|ftz|full)\b|^(?:ex2|lg2|sin|cos|tanh|rsqrt)\b|^mma\.(?!.*\.s32\.[su]8\.)"
    r"|^wgmma\.mma_async\.(?!.*\.s32\.[su]8\.)|^tcgen05\.mma\.(?!.*kind::i8)"
    r"|^(?:add|sub|mul)\.(?!rn\.)[\w.]*(?:f16|bf16|f32|f64)|^(?:mad|fma)\.[\w.]*(?:f16|bf16|f32|f64)"
    r"|^(?:atom|red)\.[\w.]*f(?:16|32|64)"
)
_BF16_PRODUCT = re.compile(r"fma\.rn\.bf16(?:x2)?\s+[^;]*,\s*(%\w+);")
_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]+)\s+[^;]*;", re.M)


def forbidden_in_ptx(text: str) -> list[str]:
    """Instructions that may round in a way of their own."""
    found = []
    for match in _INSTRUCTION.finditer(text):
        line = " ".join(match.group().split())
        if _FORBIDDEN_PTX.search(match.group(1)) and not _is_product(line, text):
            found.append(line)
    return found


def _is_product(line: str, text: str) -> bool:
    """Whether a fused multiply-add adds -0."""
    match = _BF16_PRODUCT.fullmatch(line)
    if match is None:
        return False
    zero = rf"mov\.b(?:16|32)\s+{match.group(1)}, (?:0x8000|-32768|-2147450880|0x80008000);"
    return re.search(zero, text) is not None


@dataclass(frozen=True)
class _Step:
    """One machine operation. name: without unit and encoding, as ``fma_f32``."""

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    text: str


_NEVER = re.compile(
    r"^(?:exp|log|sin|cos)_f(?:16|32)$|^(?:rcp|rsq|sqrt)_f16$|_legacy|^fma_mix"
    r"|^ma[cd](?:ak|mk)?_f(?:16|32)$|^mad_mix|^(?:mfma|wmma|swmmac)_f|^dot\d\w*_f(?:16|32)"
)
_MIXED_PRODUCT = re.compile(r"v_fma_mix_f32 [^,]+, [^,]+, [^,]+, neg\(0\)(?: op_sel\S*)*$")
_FUSED = re.compile(r"^(?:pk_)?(?:fma|fmac|fmaak|fmamk)_f(?:16|32|64)$")
_ESTIMATES = {"rcp_f32": "division", "rsq_f32": "root", "sqrt_f32": "root"}
_INSIDE = re.compile(
    r"^(?:pk_)?(?:fma|fmac|fmaak|fmamk|mul)_f32$|^div_fmas_f32$|^div_fixup_f32$"
    r"|^add_(?:\w+_)?[iu]32$|^xor_b32$|^cmp_\w+_f32$|^(?:cndmask|cselect|mov|readfirstlane)_b32$"
)
_INTEGER = re.compile(r"^mul_f32$|^cvt_u32_f32$|^readfirstlane_b32$")
_MODE = re.compile(r"^\s*(s_setreg\w*|s_denorm_mode|s_round_mode)\b.*$", re.M)
_SETTINGS = {
    "float_round_mode_32": 0,
    "float_round_mode_16_64": 0,
    "float_denorm_mode_32": 3,
    "float_denorm_mode_16_64": 3,
}


def forbidden_in_amdgcn(text: str) -> list[str]:
    """Instructions outside the sequences above, and modes that flush or round otherwise."""
    found = [match.group().strip() for match in _MODE.finditer(text)]
    for name, wanted in _SETTINGS.items():
        setting = re.search(rf"\.amdhsa_{name} (\d+)", text)
        if setting is None or int(setting.group(1)) != wanted:
            found.append(f"{name} is not {wanted}")
    # debug labels don't begin a block
    for block in re.split(r"^\.LBB\w+:.*$", text, flags=re.M):
        checker = _Block()
        for step in _steps(block):
            checker.follow(step)
        found += checker.found
    return found


@dataclass
class _Block:
    """Follows values through straight-line code.

    unfinished: registers, and the sequence they belong to.  scaled: results of v_div_scale.
    counts: floats made of integers.  classes: conditions from v_cmp_class.
    """

    unfinished: dict[str, str] = field(default_factory=dict)
    scaled: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    found: list[str] = field(default_factory=list)

    def follow(self, step: _Step) -> None:
        kinds = {self.unfinished[r] for r in step.reads if r in self.unfinished}
        if not self._allowed(step, kinds):
            self.found.append(step.text)
        sources = set(step.reads)
        kind = _ESTIMATES.get(step.name, min(kinds, default=""))
        if step.name.startswith("rcp_") and sources & self.counts:
            kind = "integer"
        over = (
            step.name in ("div_fixup_f32", "cvt_u32_f32")
            or step.name.startswith("cmp_")
            or (step.name in ("cndmask_b32", "cselect_b32") and bool(sources & self.classes))
        )
        # the logic of conditions keeps them
        classes = step.name.startswith("cmp_class") or (
            step.name.startswith(("and_b", "mov_b")) and bool(sources & self.classes)
        )
        for register in step.writes:
            self.unfinished.pop(register, None)
            if kind and not over:
                self.unfinished[register] = kind
        for group, joins in (
            (self.scaled, step.name == "div_scale_f32"),
            (self.counts, step.name in ("cvt_f32_u32", "cvt_f32_i32")),
            (self.classes, classes),
        ):
            group.difference_update(step.writes)
            if joins:
                group.update(step.writes)

    def _allowed(self, step: _Step, kinds: set[str]) -> bool:
        name, sources = step.name, set(step.reads)
        if _MIXED_PRODUCT.match(step.text):
            return not kinds
        if _NEVER.search(name):
            return False
        if name.startswith("rcp_"):
            return bool(sources & (self.scaled | self.counts))
        if _FUSED.match(name):
            return bool(kinds) and "integer" not in kinds
        if "integer" in kinds:
            return bool(_INTEGER.match(name))
        return not kinds or bool(_INSIDE.match(name))


_VECTOR = re.compile(r"^\s*((?:v|s|buffer|global|flat|ds|scratch)_\w+)\s+(.*?)\s*(?:;.*)?$", re.M)
_SETS_SCC = re.compile(r"s_(?:add|sub|and|or|xor|not|lsh|ash|bfe|abs|min_[iu]|max_[iu])")
_NO_TARGET = re.compile(r"_(?:store|write|nop|waitcnt|branch|barrier|endpgm|delay)")


def _steps(block: str) -> Iterator[_Step]:
    for match in _VECTOR.finditer(block):
        # two operations issued together
        for part in match.group(0).split("::"):
            words = part.split(";")[0].strip().split(None, 1)
            if len(words) == 2:
                yield _step(words[0], words[1], " ".join(part.split()))


def _step(opcode: str, operands: str, text: str) -> _Step:
    name = re.sub(r"^v_s_|^v_dual_|^[vs]_", "", opcode)
    name = re.sub(r"_(?:e32|e64|dpp|sdwa|e64_dpp|e32_dpp)$", "", name)
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", operands)]
    if opcode.startswith("s_load") or _NO_TARGET.search(opcode):
        count = 1 if opcode.startswith("s_load") else 0
    else:
        two = name.startswith("div_scale") or (opcode[0] == "v" and "_co_" in name)
        count = 2 if two else 1
    writes = [r for part in parts[:count] for r in _registers(part)]
    reads = [r for part in _selected(name, parts[count:]) for r in _registers(part)]
    if re.match(r"(?:pk_)?fmac|dot\w*c_", name):
        reads += writes
    if re.match(r"mad_(?:co_)?[iu]64_[iu]32$", name) and parts[0] == parts[-1]:
        # the sum's upper half may hold anything where only the lower one is used, which doesn't
        # depend on it: it stays what it is
        upper = writes.pop()
        reads.remove(upper)
    if name == "cndmask_b32" and len(parts) < 4:
        reads += ["vcc_lo", "vcc_hi"]
    if name == "div_fmas_f32":
        reads += ["vcc_lo", "vcc_hi"]
    if name == "cselect_b32":
        reads.append("scc")
    if opcode.startswith("s_cmp_"):
        reads, writes = reads + writes, ["scc"]
    elif _SETS_SCC.match(opcode):
        writes.append("scc")
    return _Step(name, tuple(writes), tuple(reads), text)


def _selected(name: str, sources: list[str]) -> list[str]:
    """Of a packed operation's pairs, what it reads: ``op_sel`` may take one half for both."""
    if not name.startswith("pk_"):
        return sources
    halves = []
    for key, default in (("op_sel", "0"), ("op_sel_hi", "1")):
        found = re.search(rf"{key}:\[([01,]+)\]", " ".join(sources))
        halves.append(found.group(1).split(",") if found else [default] * len(sources))
    chosen = []
    for i, source in enumerate(sources):
        pair = _registers(source)
        if len(pair) == 2 and i < min(map(len, halves)):
            chosen += [pair[int(half[i])] for half in halves]
        else:
            chosen.append(source)
    return chosen


def _registers(operand: str) -> list[str]:
    """Names of single registers in an operand: ranges are spelt out, vcc has two halves."""
    found = []
    for kind, one, first, last in re.findall(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])", operand):
        numbers = [one] if one else range(int(first), int(last) + 1)
        found += [f"{kind}{number}" for number in numbers]
    if re.search(r"\bvcc\b", operand):
        found += ["vcc_lo", "vcc_hi"]
    return found + re.findall(r"\bvcc_(?:lo|hi)\b", operand)
