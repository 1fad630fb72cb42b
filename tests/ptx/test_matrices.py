"""Matrix instructions: tiles through shared memory, and integer products element by element."""

from __future__ import annotations

import numpy as np
import pytest

from ptx.snippets import run_snippet


@pytest.mark.parametrize("transposed", ["", "trans."])
def test_matrices_through_shared_memory(transposed: str) -> None:
    """Tile 0 is written row by row; a lane finds the two values that ldmatrix gives it."""
    body = f"""mov.b32 %r1, global_smem; shl.b32 %r2, %r50, 2; add.s32 %r2, %r1, %r2;
    st.shared.b32 [%r2], %r0; and.b32 %r3, %r50, 7; shl.b32 %r3, %r3, 4; add.s32 %r3, %r1, %r3;
    ldmatrix.sync.aligned.m8n8.x1.{transposed}shared.b16 {{%r20}}, [%r3];
    add.s32 %r4, %r3, 128;
    stmatrix.sync.aligned.m8n8.x1.{transposed}shared.b16 [%r4], {{%r20}};
    ld.shared.b32 %r21, [%r2+128];"""
    tile = np.arange(64, dtype=np.uint16)
    found = run_snippet(body, tile.view(np.uint32), results=2, shared=256)
    wanted = tile.reshape(8, 8).T if transposed else tile.reshape(8, 8)
    assert found[0].view(np.uint16).tolist() == wanted.reshape(-1).tolist()
    assert found[1].view(np.uint16).tolist() == tile.tolist()


def test_integer_products() -> None:
    """Two warps; fragments are filled as the ISA's tables say, computed element by element."""
    rng = np.random.default_rng(5)
    a = rng.integers(-128, 128, (2, 16, 32)).astype(np.int8)
    b = rng.integers(-128, 128, (2, 32, 8)).astype(np.int8)
    c = rng.integers(-(2**20), 2**20, (2, 16, 8)).astype(np.int32)
    words = np.zeros((10, 64), np.uint32)
    bytes_of = words.view(np.uint8).reshape(10, 64, 4)
    for warp in range(2):
        for lane in range(32):
            group, member, at = lane >> 2, lane % 4, warp * 32 + lane
            for i in range(16):
                row = group if i < 4 or 8 <= i < 12 else group + 8
                bytes_of[i // 4, at, i % 4] = a[warp, row, member * 4 + i % 4 + 16 * (i >= 8)].view(
                    np.uint8
                )
            for i in range(8):
                k = member * 4 + i % 4 + 16 * (i >= 4)
                bytes_of[4 + i // 4, at, i % 4] = b[warp, k, group].view(np.uint8)
            for i in range(4):
                words[6 + i, at] = c[warp, group + 8 * (i >= 2), member * 2 + i % 2].view(np.uint32)
    body = """mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32
    {%r20, %r21, %r22, %r23}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7, %r8, %r9};"""
    found = run_snippet(body, *words, results=4, threads=64).view(np.int32)
    wanted = a.astype(np.int32) @ b.astype(np.int32) + c
    for warp in range(2):
        for lane in range(32):
            row, column = lane >> 2, lane % 4 * 2
            tile = wanted[warp, [row, row, row + 8, row + 8], [column, column + 1] * 2]
            assert found[:, warp * 32 + lane].tolist() == tile.tolist()


def test_matrices_of_one_warp_of_two() -> None:
    body = """mov.b32 %r1, global_smem; shl.b32 %r2, %r50, 2; add.s32 %r2, %r1, %r2;
    st.shared.b32 [%r2], %r0; bar.sync 0; mov.b32 %r20, 5; setp.lt.s32 %p1, %r50, 32;
    and.b32 %r3, %r50, 7; shl.b32 %r3, %r3, 4; add.s32 %r3, %r1, %r3;
    @%p1 bra DO; bra DONE;
DO:
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r20}, [%r3];
DONE:"""
    words = np.arange(64, dtype=np.uint32)
    found = run_snippet(body, words, threads=64, shared=256)[0]
    assert found.tolist() == [*range(32), *[5] * 32]


@pytest.mark.parametrize("columns", [8, 16])
@pytest.mark.parametrize(("mode", "width"), [(0, 16), (3, 32), (2, 64), (1, 128)])
def test_products_of_a_warp_group(mode: int, width: int, columns: int) -> None:
    """Both matrices lie in shared memory as the ISA describes K-major tiles, byte by byte."""
    rng = np.random.default_rng(mode)
    a, b = (rng.integers(-128, 128, (rows, 32)).astype(np.int8) for rows in (64, columns))
    stride = 8 * max(width, 32)  # from one group of 8 rows to the next
    room = np.zeros(10_240, np.uint8)
    for start, matrix in ((0, a), (8192, b)):
        for row, k in np.ndindex(matrix.shape):
            if mode == 0:
                at = row // 8 * stride + k // 16 * 128 + row % 8 * 16 + k % 16
            else:
                at = row // 8 * stride + row % 8 * width + k
                at ^= at // 128 % (width // 16) * 16
            room[start + at] = matrix[row, k].view(np.uint8)
    words = room.view(np.uint32).reshape(20, 128)
    stores = "".join(f"st.shared.b32 [%r41 + {512 * i}], %r{i};" for i in range(20))
    count = columns // 2
    registers = ", ".join(f"%r{20 + i}" for i in range(count))
    before = "".join(f"add.s32 %r{20 + i}, %r40, {1000 * i};" for i in range(count))
    first, second = (
        start // 16 | 128 // 16 << 16 | stride // 16 << 32 | mode << 62 for start in (0, 8192)
    )
    body = f"""mov.b32 %r40, %tid.x; shl.b32 %r41, %r40, 2; mov.b32 %r42, global_smem;
    add.s32 %r41, %r41, %r42; {stores} bar.sync 0; {before}
    mov.b64 %rd6, {first}; mov.b64 %rd7, {second}; setp.ne.s32 %p1, %r40, 999;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{columns}k32.s32.s8.s8 {{{registers}}}, %rd6, %rd7, %p1;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    found = run_snippet(body, *words, results=count, threads=128, shared=10_240).view(np.int32)
    wanted = a.astype(np.int32) @ b.astype(np.int32).T
    for thread, i in np.ndindex(128, count):
        row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
        column = i // 4 * 8 + thread % 4 * 2 + i % 2
        assert found[i, thread] == wanted[row, column] + thread + 1000 * i
