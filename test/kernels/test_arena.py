# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The arena planner: when these fail, one intermediate of a policy silently overwrites another."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt_kernels import arena
from flashrt_kernels.arena import ALIGNMENT, Plan, Request

DTYPES = (torch.uint8, torch.bfloat16, torch.float32)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    result = []
    for index in range(draw(st.integers(0, 30))):
        shape = tuple(draw(st.lists(st.integers(0, 40), min_size=1, max_size=3)))
        first = draw(st.integers(0, 20))
        last = first + draw(st.integers(0, 8))
        dtype, in_front = draw(st.sampled_from(DTYPES)), draw(st.booleans())
        result.append(Request(f"b{index}", shape, dtype, first, last, in_front))
    return result


def assert_sound(plan: Plan, everything_alive: bool) -> None:
    """Brute force: no byte belongs to two buffers at the same launch."""
    for placement in plan.placements:
        assert placement.offset % ALIGNMENT == 0
        assert placement.offset + placement.request.bytes <= plan.bytes
    for launch in range(30):
        owner: dict[int, str] = {}
        for placement in plan.placements:
            r = placement.request
            if everything_alive or r.first <= launch <= r.last:
                # blocks of ALIGNMENT bytes suffice: offsets are multiples of it
                for block in range(
                    placement.offset // ALIGNMENT, -(-(placement.offset + r.bytes) // ALIGNMENT)
                ):
                    assert block not in owner, f"{r.name} and {owner[block]} share bytes at launch {launch}"
                    owner[block] = r.name


@given(requests())
def test_buffers_alive_together_never_share_bytes(reqs: list[Request]) -> None:
    """A shared byte means wrong actions without any error."""
    plan = arena.plan(reqs)
    assert [p.request for p in plan.placements] == reqs
    assert_sound(plan, everything_alive=False)


@given(requests())
def test_without_reuse_every_buffer_has_its_own_bytes(reqs: list[Request]) -> None:
    """The plan without reuse is what a suspected reuse bug is compared with."""
    plan = arena.plan(reqs, reuse=False)
    assert_sound(plan, everything_alive=True)
    assert plan.bytes == plan.bytes_without_reuse


@given(requests())
def test_reuse_never_costs_memory(reqs: list[Request]) -> None:
    """Otherwise switching reuse on could fail where it was off."""
    assert arena.plan(reqs).bytes <= arena.plan(reqs, reuse=False).bytes


def test_a_chain_needs_two_buffers() -> None:
    """Without reuse a deep model would need memory for every layer."""
    chain = [Request(f"x{i}", (1000,), torch.float32, i, i + 1) for i in range(50)]
    plan = arena.plan(chain)
    assert plan.bytes == 2 * 4096
    assert plan.bytes_without_reuse == 50 * 4096


def test_buffer_of_the_last_launch_is_not_given_to_the_same_launch() -> None:
    """A kernel would read its input from where it writes its output."""
    plan = arena.plan([Request("in", (64,), torch.float32, 0, 3), Request("out", (64,), torch.float32, 3, 4)])
    assert plan.bytes == 512


def test_describe_lists_lifetimes_and_totals() -> None:
    """The printed plan is how a user sees where memory goes."""
    text = arena.plan(
        [Request("a", (3, 5), torch.float32, 0, 1), Request("b", (7,), torch.bfloat16, 2, 3)]
    ).describe()
    assert "a       3×5    float32   60     0       0..1" in text
    assert "256 bytes with reuse, 512 without" in text


def test_describe_can_be_limited_to_the_largest() -> None:
    """A full-size policy has thousands of buffers."""
    text = arena.plan([Request(f"b{i}", (i + 1,), torch.float32, i, i) for i in range(9)]).describe(limit=2)
    assert "b8" in text
    assert "b0" not in text
    assert "7 smaller buffers" in text


def test_allocation_starts_aligned() -> None:
    """Offsets are promises about addresses; an unaligned base would break all of them."""
    for size in (0, 1, 1000, 4096):
        memory = arena.allocate(size).arena
        assert memory.numel() == size
        assert size == 0 or memory.data_ptr() % ALIGNMENT == 0
