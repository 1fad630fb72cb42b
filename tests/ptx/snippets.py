"""A few PTX instructions as a kernel, and what each thread finds."""

from __future__ import annotations

import numpy as np

from ptx.machine import Machine
from ptx.memory import Memory
from ptx.parse import parse
from ptx.scalars import Array

_TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry snippet(
	.param .u64 .ptr .global .align 1 snippet_param_0,
	.param .u64 .ptr .global .align 1 snippet_param_1,
	.param .u32 snippet_param_2
)
.reqntid {threads}
{{
	.reg .pred %p<20>;
	.reg .b16 %rs<20>;
	.reg .b32 %r<60>;
	.reg .b64 %rd<20>;
	ld.param.b64 %rd0, [snippet_param_0];
	ld.param.b64 %rd1, [snippet_param_1];
	ld.param.b32 %r59, [snippet_param_2];
	mov.u32 %r50, %tid.x;
	mov.u32 %r51, %ntid.x;
	mov.u32 %r52, %ctaid.x;
	mad.lo.s32 %r53, %r52, %r51, %r50;
	mul.wide.u32 %rd10, %r53, {given};
	add.s64 %rd0, %rd0, %rd10;
	mul.wide.u32 %rd11, %r53, {found};
	add.s64 %rd1, %rd1, %rd11;
{body}
	ret;
}}
"""


def run_snippet(
    body: str, *words: Array, results: int = 1, threads: int = 32, shared: int = 0
) -> Array:
    """Run ``body`` once per element of the 32-bit arrays ``words``; returns [results, threads].

    It finds the words of its thread in %r0, %r1, ... and leaves results in %r20, %r21, ...; %r50 is
    the thread in its block, %r52 the block, %rd0 and %rd1 the thread's place in both arrays.
    """
    whole = np.stack(
        [np.asarray(word).view(np.uint32) for word in words] or [np.zeros(threads, np.uint32)]
    )
    count = whole.shape[1]
    loads = [f"ld.global.b32 %r{i}, [%rd0+{4 * i}];" for i in range(len(whole))]
    stores = [f"st.global.b32 [%rd1+{4 * i}], %r{20 + i};" for i in range(results)]
    text = _TEXT.format(
        threads=threads,
        given=4 * len(whole),
        found=4 * results,
        body="\n".join([*loads, body, *stores]),
    )
    memory = Memory("global memory")
    given = memory.place(np.ascontiguousarray(whole.T).view(np.uint8).reshape(-1))
    found = memory.place(np.full(count * results * 4, 0xFF, np.uint8))
    Machine(parse(text), shared).run((count // threads, 1, 1), [given, found, count], memory)
    bits = memory.content(found, count * results * 4).view(np.uint32)
    return np.ascontiguousarray(bits.reshape(count, results).T)
