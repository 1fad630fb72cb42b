"""The rules find what they are for, in written fragments and in code that was compiled wrongly."""

from __future__ import annotations

import pytest

from ptx.rules import forbidden_in_amdgcn, forbidden_in_ptx

PTX = {
    "add.rn.f32 %r1, %r2, %r3;": True,
    "mad.lo.s32 %r1, %r2, %r3, %r4;": True,
    "mad.wide.u32 %rd1, %r2, 4, %rd3;": True,
    "div.rn.f32 %r1, %r2, %r3;": True,
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};": True,
    "mov.b16 %rs9, 0x8000; fma.rn.bf16 %rs1, %rs2, %rs3, %rs9;": True,
    "mov.b16 %rs9, 0x3F80; fma.rn.bf16 %rs1, %rs2, %rs3, %rs9;": False,
    "fma.rn.f32 %r1, %r2, %r3, %r4;": False,
    "@%p1 fma.rn.f32 %r1, %r2, %r3, %r4;": False,
    "add.f32 %r1, %r2, %r3;": False,
    "mul.rn.ftz.f32 %r1, %r2, %r3;": False,
    "div.full.f32 %r1, %r2, %r3;": False,
    "sqrt.approx.f32 %r1, %r2;": False,
    "ex2.approx.ftz.f32 %r1, %r2;": False,
    "cvt.rmi.ftz.f32.f32 %r1, %r2;": False,
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4};": False,
    "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%r1}, {%r2}, %rd1, 0;": True,
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%r1}, %rd2, %rd1, 1, 1, 1, 0, 0;": False,
    "tcgen05.mma.cta_group::1.kind::i8 [%r1], %rd1, %rd2, %r2, %p1;": True,
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;": False,
    "atom.global.gpu.acq_rel.add.f32 %r1, [%rd1], %r2;": False,
}


@pytest.mark.parametrize("code", PTX)
def test_ptx(code: str) -> None:
    text = "".join(f"\t{line.strip()};\n" for line in code.split(";") if line.strip())
    assert (forbidden_in_ptx(text) == []) == PTX[code]


MODES = """
\t.amdhsa_float_round_mode_32 0
\t.amdhsa_float_round_mode_16_64 0
\t.amdhsa_float_denorm_mode_32 3
\t.amdhsa_float_denorm_mode_16_64 3
"""
DIVISION = """
v_div_scale_f32 v3, s[2:3], v2, v2, v1
v_rcp_f32_e32 v4, v3
.Ltmp1:
v_div_scale_f32 v5, vcc, v1, v2, v1
v_fma_f32 v6, -v3, v4, 1.0
v_fmac_f32_e32 v4, v6, v4
v_mul_f32_e32 v6, v5, v4
v_fma_f32 v7, -v3, v6, v5
v_fmac_f32_e32 v6, v7, v4
v_fma_f32 v3, -v3, v6, v5
v_div_fmas_f32 v3, v3, v4, v6
v_div_fixup_f32 v1, v3, v2, v1
buffer_store_dword v1, v0, s[0:3], 0 offen
"""
ROOT = """
v_sqrt_f32_e32 v3, v0
v_add_nc_u32_e32 v5, -1, v3
v_add_nc_u32_e32 v7, 1, v3
v_fma_f32 v9, -v5, v3, v0
v_fma_f32 v11, -v7, v3, v0
v_cmp_ge_f32_e64 s1, 0, v9
v_cndmask_b32_e64 v3, v3, v5, s1
v_cmp_lt_f32_e64 s1, 0, v11
v_cndmask_b32_e64 v3, v3, v7, s1
v_mul_f32_e32 v5, 0x37800000, v3
v_cndmask_b32_e32 v3, v3, v5, vcc_lo
v_cmp_class_f32_e64 vcc_lo, v0, 0x260
v_cndmask_b32_e32 v0, v3, v0, vcc_lo
v_mul_f32_e32 v1, v1, v0
buffer_store_b32 v1, v2, s[0:3], 0 offen
"""
INTEGER = """
v_cvt_f32_u32_e32 v1, s0
v_rcp_f32_e32 v2, v1
v_mul_f32_e32 v2, 0x4f7ffffe, v2
v_cvt_u32_f32_e32 v2, v2
v_mul_lo_u32 v3, s0, v2
"""
PACKED = """
v_rsq_f32_e32 v5, v9
v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0]
buffer_store_dwordx2 v[0:1], v7, s[4:7], 0 offen
"""
# an address of 64 bits whose upper half is an unfinished quotient that nobody looks at
ADDRESS = DIVISION.replace(
    "v_div_fixup", "v_mad_u64_u32 v[8:9], null, s6, s16, v[8:9]\nv_div_fixup"
).replace("v7", "v9")
MIXED = "v_fma_mix_f32 v1, v2, v3, neg(0) op_sel:[1,0,0] op_sel_hi:[1,0,0]"
RIGHT = {
    "division": DIVISION,
    "root": ROOT,
    "integer": INTEGER,
    "half of a pair": PACKED,
    "unused half of an address": ADDRESS,
    "product of a half": MIXED,
}
WRONG = {
    "fused": "v_fma_f32 v1, v2, v3, v4",
    "fused in place": "v_fmac_f32_e32 v1, v2, v3",
    "two at once": "v_dual_add_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6",
    "packed": "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]",
    "both of a pair": PACKED.replace(" op_sel_hi:[1,0]", ""),
    "fused with a half": MIXED.replace("neg(0)", "v4"),
    "product of a half plus 0": MIXED.replace("neg(0)", "0"),
    "clamped product": MIXED + " clamp",
    "scalar": "s_fmac_f32 s1, s2, s3",
    "unfused but flushing": "v_mad_f32 v1, v2, v3, v4",
    "exponential": "v_exp_f32_e32 v1, v2",
    "plain reciprocal": "v_rcp_f32_e32 v1, v2",
    "estimated root": "v_sqrt_f32_e32 v1, v2\nbuffer_store_dword v1, v0, s[0:3], 0 offen",
    "estimated inverse root": "v_rsq_f32_e32 v1, v2\nv_add_f32_e32 v1, 1.0, v1",
    "division left early": DIVISION.replace("v_div_fixup_f32 v1, v3, v2, v1", "v_mov_b32 v1, v3"),
    "used half of an address": ADDRESS.replace("v9", "v8"),
    "fused after a division": DIVISION + "v_fma_f32 v2, v1, v1, v0",
    "reciprocal of an integer": INTEGER.replace("v_cvt_u32_f32_e32", "v_add_f32_e32 v2, v2,"),
    "tensor product": "v_mfma_f32_16x16x4_f32 a[0:3], v0, v1, a[0:3]",
    "mode": "s_denorm_mode 0",
}


@pytest.mark.parametrize("name", RIGHT)
def test_sequences_that_round_correctly(name: str) -> None:
    assert forbidden_in_amdgcn(MODES + RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_everything_else_in_amdgcn(name: str) -> None:
    assert forbidden_in_amdgcn(MODES + WRONG[name])


def test_modes_are_checked() -> None:
    flushing = MODES.replace("denorm_mode_32 3", "denorm_mode_32 0")
    assert forbidden_in_amdgcn(flushing) == ["float_denorm_mode_32 is not 3"]
    assert len(forbidden_in_amdgcn("")) == 4
