# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Writes flashrt_kernels/cuda/src/wgmma.cuh: a wrapper for each width of wgmma.mma_async m64nNk16 in bf16.

An instruction names every accumulator register, so a wrapper for N columns has N/2 operands: too many to
type.

Usage: python tools/make_wgmma_header.py
"""

from pathlib import Path

HEADER = Path(__file__).resolve().parent.parent / "flashrt_kernels/cuda/src/wgmma.cuh"
WIDTHS = range(8, 257, 8)
START = """\
// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Written by tools/make_wgmma_header.py; edit that.
//
// Wgmma<N>: d[64, N] += a[64, 16] · b[N, 16]ᵀ for one warpgroup, bf16 operands, fp32 accumulators (N/2 a
// thread). ss: a and b from shared memory, by descriptors. rs: a from registers, in the layout of mma.sync's
// A fragment. transposed: b lies [16, N] in memory (MN-major); a_transposed: a lies [16, 64]. accumulate = 0
// overwrites d.
#pragma once

#include <cstdint>

namespace flashrt {

template <int N> struct Wgmma;
"""


def wrapper(name: str, width: int) -> str:
    """The function `ss` or `rs` for `width` columns."""
    count = width // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    if name == "ss":
        taken, inputs = "uint64_t a, uint64_t b", '"l"(a), "l"(b)'
        operand, last = f"%{count}", count + 1
        template, extra = "int transposed = 0, int a_transposed = 0", ', "n"(a_transposed)'
        flags = "1, 1, %{1}, %{0}"
    else:
        taken = "const uint32_t (&a)[4], uint64_t b"
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) + ', "l"(b)'
        operand, last = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}", count + 4
        template, extra = "int transposed = 0", ""
        flags = "1, 1, %{0}"
    return f"""\
    template <{template}>
    __device__ __forceinline__ static void {name}(float (&d)[{count}], {taken}, int accumulate) {{
        asm volatile(
            "{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{last + 1}, 0;\\n"
            "wgmma.mma_async.sync.aligned.m64n{width}k16.f32.bf16.bf16 "
            "{{{registers}}}, "
            "{operand}, %{last}, p, {flags.format(last + 2, last + 3)};\\n}}"
            : {outputs}
            : {inputs}, "r"(accumulate), "n"(transposed){extra});
    }}
"""


def header() -> str:
    """The text of wgmma.cuh."""
    parts = [START]
    for width in WIDTHS:
        body = wrapper("ss", width) + wrapper("rs", width)
        parts.append(f"template <> struct Wgmma<{width}> {{\n{body}}};\n")
    return "\n".join(parts) + "\n}  // namespace flashrt\n"


if __name__ == "__main__":
    HEADER.write_text(header(), encoding="utf-8")
