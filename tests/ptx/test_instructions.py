"""Single instructions, with results worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ptx.errors import PtxError, UnsupportedError
from ptx.snippets import run_snippet

LANE = np.arange(32, dtype=np.int32)


def _same(*values: float, dtype: type = np.int32) -> list[np.ndarray]:
    return [np.full(32, value, np.int64).astype(dtype) for value in values]


def _first(body: str, *words: np.ndarray, results: int = 1) -> int:
    return int(run_snippet(body, *words, results=results)[0, 0])


@pytest.mark.parametrize(
    ("instruction", "a", "b", "wanted"),
    [
        ("add.s32 %r20, %r0, %r1;", 0x7FFFFFFF, 1, 0x80000000),
        ("sub.s32 %r20, %r0, %r1;", 3, 5, 0xFFFFFFFE),
        ("mul.lo.s32 %r20, %r0, %r1;", -3, 7, 0xFFFFFFEB),
        ("mul.hi.u32 %r20, %r0, %r1;", -1, -1, 0xFFFFFFFE),
        ("mul.hi.s32 %r20, %r0, %r1;", -1, -1, 0),
        ("mad.lo.s32 %r20, %r0, %r1, 100;", -3, 7, 79),
        ("div.s32 %r20, %r0, %r1;", -7, 2, 0xFFFFFFFD),
        ("rem.s32 %r20, %r0, %r1;", -7, 2, 0xFFFFFFFF),
        ("div.u32 %r20, %r0, %r1;", -7, 2, 0x7FFFFFFC),
        ("shl.b32 %r20, %r0, %r1;", 1, 32, 0),
        ("shr.u32 %r20, %r0, %r1;", -1, 31, 1),
        ("shr.s32 %r20, %r0, %r1;", -8, 40, 0xFFFFFFFF),
        ("bfe.u32 %r20, %r0, 4, 8;", 0xABCD, 0, 0xBC),
        ("bfe.s32 %r20, %r0, 4, 8;", 0xABCD, 0, 0xFFFFFFBC),
        ("bfe.s32 %r20, %r0, 0, 1;", 1, 0, 0xFFFFFFFF),
        ("bfi.b32 %r20, %r0, %r1, 8, 4;", 0xF7, 0x11111111, 0x11111711),
        ("prmt.b32 %r20, %r0, %r1, 0x5410U;", 0x33221100, 0x77665544, 0x55441100),
        ("prmt.b32 %r20, %r0, %r1, 0x000cU;", 0x00000001, 0x00000080, 0x010101FF),
        ("lop3.b32 %r20, %r0, %r1, 0, 0x3C;", 0b1100, 0b1010, 0b0110),
        ("popc.b32 %r20, %r0;", 0xF0F, 0, 8),
        ("clz.b32 %r20, %r0;", 0xF0F, 0, 20),
        ("brev.b32 %r20, %r0;", 0x1, 0, 0x80000000),
        ("shf.l.wrap.b32 %r20, %r0, %r1, 8;", 0xAA000000, 0x11, 0x11AA),
        ("min.s32 %r20, %r0, %r1;", -1, 1, 0xFFFFFFFF),
        ("min.u32 %r20, %r0, %r1;", -1, 1, 1),
        ("add.s16x2 %r20, %r0, %r1;", 0x0001FFFF, 0x00010001, 0x00020000),
        ("not.b32 %r20, %r0;", 5, 0, 0xFFFFFFFA),
        ("cvt.s8.s32 %rs1, %r0; cvt.s32.s16 %r20, %rs1;", 0x1FF, 0, 0xFFFFFFFF),
        ("cvt.u16.u32 %rs1, %r0; cvt.u32.u16 %r20, %rs1;", 0x12345, 0, 0x2345),
        ("mov.b32 {%rs1, %rs2}, %r0; mov.b32 %r20, {%rs2, %rs1};", 0x12345678, 0, 0x56781234),
        ("mul.wide.s32 %rd5, %r0, %r1; cvt.u32.u64 %r20, %rd5;", -2, 3, 0xFFFFFFFA),
        ("setp.lt.s32 %p1, %r0, %r1; selp.b32 %r20, 7, 9, %p1;", -1, 1, 7),
        ("setp.lt.u32 %p1, %r0, %r1; selp.b32 %r20, 7, 9, %p1;", -1, 1, 9),
    ],
)
def test_integers(instruction: str, a: int, b: int, wanted: int) -> None:
    assert _first(instruction, *_same(a, b)) == wanted


NAN, INF = 0x7FFFFFFF, 0x7F800000


@pytest.mark.parametrize(
    ("instruction", "a", "b", "wanted"),
    [
        ("add.rn.f32 %r20, %r0, %r1;", 0x4B800000, 0x3F800000, 0x4B800000),  # 2^24 + 1: to even
        ("mul.rn.f32 %r20, %r0, %r1;", 0x00000003, 0x3F000000, 0x00000002),  # subnormal: to even
        ("div.rn.f32 %r20, %r0, %r1;", 0x3F800000, 0x40400000, 0x3EAAAAAB),  # 1 / 3
        ("sqrt.rn.f32 %r20, %r0;", 0x40000000, 0, 0x3FB504F3),
        ("sqrt.rn.f32 %r20, %r0;", 0xBF800000, 0, NAN),
        ("sub.rn.f32 %r20, %r0, %r1;", INF, INF, NAN),
        ("neg.f32 %r20, %r0;", 0xFFC00001, 0, 0x7FC00001),  # a sign bit, even of a NaN
        ("abs.f32 %r20, %r0;", 0x80000000, 0, 0),
        ("max.f32 %r20, %r0, %r1;", NAN, 0x3F800000, 0x3F800000),
        ("max.NaN.f32 %r20, %r0, %r1;", NAN, 0x3F800000, NAN),
        ("max.f32 %r20, %r0, %r1;", 0x80000000, 0x00000000, 0x00000000),  # -0 < +0
        ("min.f32 %r20, %r0, %r1;", 0x00000000, 0x80000000, 0x80000000),
        ("min.xorsign.abs.f32 %r20, %r0, %r1;", 0xC0000000, 0x3F800000, 0xBF800000),
        ("fma.rn.f32 %r20, %r0, %r0, %r1;", 0x3F800800, 0xBF801000, 0x33800000),
        ("cvt.rzi.s32.f32 %r20, %r0;", 0xC0200000, 0, 0xFFFFFFFE),  # -2.5
        ("cvt.rni.s32.f32 %r20, %r0;", 0x40200000, 0, 2),  # 2.5 to even
        ("cvt.rzi.s32.f32 %r20, %r0;", INF, 0, 0x7FFFFFFF),
        ("cvt.rzi.s32.f32 %r20, %r0;", NAN, 0, 0),
        ("cvt.rzi.u32.f32 %r20, %r0;", 0xC0200000, 0, 0),
        ("cvt.rn.f32.s32 %r20, %r0;", 0x01000001, 0, 0x4B800000),
        ("cvt.rn.f16.f32 %rs1, %r0; cvt.u32.u16 %r20, %rs1;", 0x477FF000, 0, 0x7C00),  # 65520
        ("cvt.rn.f16.f32 %rs1, %r0; cvt.u32.u16 %r20, %rs1;", 0x477FEFFF, 0, 0x7BFF),
        ("cvt.u16.u32 %rs1, %r0; cvt.f32.f16 %r20, %rs1;", 0x0001, 0, 0x33800000),  # 2^-24
        ("cvt.rn.bf16.f32 %rs1, %r0; cvt.u32.u16 %r20, %rs1;", 0x3F808000, 0, 0x3F80),
        ("cvt.rn.bf16.f32 %rs1, %r0; cvt.u32.u16 %r20, %rs1;", 0x3F818000, 0, 0x3F82),
        ("cvt.rn.f16x2.f32 %r20, %r0, %r1;", 0x3F800000, 0x40000000, 0x3C004000),
        ("add.rn.f16x2 %r20, %r0, %r1;", 0x3C004000, 0x3C003C00, 0x40004200),
        ("setp.ne.f32 %p1, %r0, %r1; selp.b32 %r20, 1, 0, %p1;", NAN, NAN, 0),
        ("setp.neu.f32 %p1, %r0, %r1; selp.b32 %r20, 1, 0, %p1;", NAN, NAN, 1),
        ("setp.num.f32 %p1, %r0, %r1; selp.b32 %r20, 1, 0, %p1;", NAN, INF, 0),
    ],
)
def test_floats(instruction: str, a: int, b: int, wanted: int) -> None:
    assert _first(instruction, *_same(a, b)) == wanted


@pytest.mark.parametrize(
    "instruction",
    [
        "add.rn.ftz.f32 %r20, %r0, %r1;",
        "ex2.approx.f32 %r20, %r0;",
        "rcp.approx.ftz.f32 %r20, %r0;",
        "div.full.f32 %r20, %r0, %r1;",
        "sqrt.approx.f32 %r20, %r0;",
        "cvt.rmi.ftz.f32.f32 %r20, %r0;",
        "atom.global.gpu.relaxed.add.f32 %r20, [%rd1], %r0;",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r20}, {%r0}, {%r1}, {%r0};",
        "frobnicate.b32 %r20, %r0;",
    ],
)
def test_what_is_refused_is_named(instruction: str) -> None:
    with pytest.raises(UnsupportedError, match=instruction.split()[0].replace(".", r"\.")):
        run_snippet(instruction, *_same(1, 1))


SHUFFLES = {
    "shfl.sync.bfly.b32 %r20, %r0, 1, 31, -1;": LANE ^ 1,
    "shfl.sync.up.b32 %r20, %r0, 2, 0, -1;": np.where(LANE < 2, LANE, LANE - 2),
    "shfl.sync.down.b32 %r20, %r0, 2, 31, -1;": np.where(LANE > 29, LANE, LANE + 2),
    "shfl.sync.idx.b32 %r20, %r0, 5, 31, -1;": np.full(32, 5),
    # segments of eight: the upper bits of the lane stay
    "shfl.sync.idx.b32 %r20, %r0, 5, 0x181f, -1;": LANE // 8 * 8 + 5,
    "shfl.sync.down.b32 %r20, %r0, 4, 0x181f, -1;": np.where(LANE % 8 < 4, LANE + 4, LANE),
    "shfl.sync.up.b32 %r20|%p1, %r0, 1, 0, -1; @!%p1 mov.b32 %r20, -1;": LANE - 1,
}


@pytest.mark.parametrize("instruction", SHUFFLES)
def test_shuffles(instruction: str) -> None:
    found = run_snippet(instruction, np.tile(LANE, 2), threads=64)[0].view(np.int32)
    assert found.tolist() == np.tile(SHUFFLES[instruction], 2).tolist()


def test_reductions_and_votes() -> None:
    body = """redux.sync.min.s32 %r20, %r0, -1; redux.sync.add.u32 %r21, %r50, -1;
    setp.gt.s32 %p1, %r0, 0; vote.sync.ballot.b32 %r22, %p1, -1;"""
    found = run_snippet(body, LANE - 2, results=3)
    assert found[:, 9].tolist() == [0xFFFFFFFE, 496, 0xFFFFFFF8]


def test_parted_threads_meet_again() -> None:
    """A loop whose length differs by thread, and a conditional."""
    body = """mov.u32 %r20, 0; mov.u32 %r1, %r50;
    $again: setp.eq.s32 %p1, %r1, 0; @%p1 bra $done;
    add.s32 %r20, %r20, %r1; sub.s32 %r1, %r1, 1; bra.uni $again;
    $done: setp.lt.s32 %p2, %r50, 4; @!%p2 bra $over; mov.u32 %r20, 99; $over:
    bar.sync 0;"""
    found = run_snippet(body, np.tile(LANE, 3))[0]
    wanted = np.where(LANE < 4, 99, LANE * (LANE + 1) // 2)
    assert found.tolist() == np.tile(wanted, 3).tolist()


@pytest.mark.parametrize("instruction", ["bar.sync 0;", "shfl.sync.bfly.b32 %r20, %r0, 1, 31, -1;"])
def test_a_part_of_the_threads_cannot_do_what_needs_all(instruction: str) -> None:
    body = f"mov.u32 %r20, 0; setp.lt.s32 %p1, %r50, 4; @%p1 bra $o; {instruction} $o:"
    with pytest.raises(PtxError, match="only a part"):
        run_snippet(body, LANE)


def test_a_loop_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptx.machine.STEPS", 1000)
    with pytest.raises(PtxError, match="no end"):
        run_snippet("$l: bra.uni $l;", LANE)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("ld.global.b32 %r20, [%rd0+8192];", "out"),
        ("ld.global.b32 %r20, [%rd0-4];", "outside any array"),
        ("ld.global.b32 %r20, [%rd0+2];", "not aligned"),
        ("ld.global.v2.b32 {%r20, %r21}, [%rd0];", "not aligned"),
        ("ld.shared.b32 %r20, [%r50+4096];", "out of bounds"),
        ("mov.b32 %r20, %r40;", "read before"),
    ],
)
def test_faults(instruction: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run_snippet(instruction, LANE, shared=4096)


def test_memory() -> None:
    """Bytes and halves extended as their type says, vectors, predicates, poisoned shared memory."""
    body = """mov.b32 %r1, global_smem; shl.b32 %r2, %r50, 3; add.s32 %r1, %r1, %r2;
    st.shared.v2.b32 [%r1], {%r0, %r50}; ld.shared.s8 %r20, [%r1+1]; ld.shared.u16 %r21, [%r1];
    ld.shared.b32 %r22, [%r1+256]; mov.u32 %r23, 5; setp.lt.s32 %p1, %r50, 1;
    @%p1 ld.shared.b32 %r23, [%r1+4];"""
    found = run_snippet(body, np.full(32, 0xF123, np.int32), results=4, shared=512)
    assert found[:, 0].tolist() == [0xFFFFFFF1, 0xF123, 0xFFFFFFFF, 0]
    assert found[3, 1:].tolist() == [5] * 31


def test_a_shared_address_may_lie_below_its_array_until_the_offset_is_added() -> None:
    body = """mov.b32 %r1, global_smem; shl.b32 %r2, %r50, 2; add.s32 %r1, %r1, %r2;
    sub.s32 %r1, %r1, 64; st.shared.b32 [%r1+64], %r0; ld.shared.b32 %r20, [%r1+64];"""
    assert run_snippet(body, LANE, shared=128)[0].tolist() == LANE.tolist()


def test_asynchronous_copies_fill_up_with_zeros() -> None:
    body = """mov.b32 %r1, global_smem; shl.b32 %r2, %r50, 2; add.s32 %r1, %r1, %r2;
    setp.lt.s32 %p1, %r50, 2; selp.b32 %r3, 4, 0, %p1;
    cp.async.ca.shared.global [%r1], [%rd0], 0x4, %r3;
    cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; ld.shared.b32 %r20, [%r1];"""
    found = run_snippet(body, LANE + 7, shared=128)[0]
    assert found.tolist() == [7, 8] + [0] * 30


def test_atomics_take_turns() -> None:
    body = "sub.s64 %rd6, %rd0, %rd10; atom.global.gpu.acq_rel.add.u32 %r20, [%rd6], 1;"
    assert sorted(run_snippet(body, np.zeros(32, np.int32))[0].tolist()) == list(range(32))


def test_bytes_that_nobody_wrote_are_ones() -> None:
    """Only a permutation of bytes may take them: what it makes of them must not matter."""
    assert run_snippet("prmt.b32 %r20, %r0, %r30, 0x5410U;", LANE)[0, 3] == 0xFFFF0003
    with pytest.raises(PtxError, match="read before it is written"):
        run_snippet("add.s32 %r20, %r0, %r30;", LANE)
