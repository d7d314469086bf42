# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Declarations: when these fail, a wrong call runs (on a GPU: corrupts memory) instead of being refused."""

from typing import Any, Literal

import pytest
import torch

from flashrt_kernels.buffer import Buffer
from flashrt_kernels.errors import GraphError
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.kernel import FLOAT, FLOAT32, INT32, In, InOut, Out, kernel


@kernel(
    x=In("rows heads*width", FLOAT, align=16),
    index=In("rows", INT32, optional=True),
    total=InOut("width", FLOAT32),
    out=Out("rows 2*width", FLOAT, like="x"),
    multiples=[("heads", "2")],
)
def sample(
    x: torch.Tensor,
    index: torch.Tensor | None,
    total: torch.Tensor,
    out: torch.Tensor,
    *,
    heads: int,
    width: int,
    scale: float = 1.0,
    mode: Literal["fast", "slow"] = "fast",
) -> None:
    """A kernel of every kind of argument."""
    out.fill_(scale)
    total.add_(1)


def arguments(**changes: Any) -> dict[str, Any]:
    return {"x": torch.zeros(3, 8), "total": torch.zeros(4), "heads": 2, "width": 4, **changes}


def test_outputs_are_allocated_from_the_declaration() -> None:
    """A PyTorch host calls a kernel like a function."""
    total, out = sample(**arguments(scale=2))
    assert out.shape == (3, 8)
    assert out.dtype == torch.float32
    assert out.eq(2).all()
    assert total.eq(1).all()


def test_output_dtype_follows_its_model_or_the_caller() -> None:
    """bf16 activations must not become fp32 by the way, nor the last layer's fp32 be lost."""
    x = torch.zeros(3, 8, dtype=torch.bfloat16)
    assert sample(**arguments(x=x))[1].dtype == torch.bfloat16
    assert sample(**arguments(x=x, out_dtype=torch.float32))[1].dtype == torch.float32


def test_given_output_is_used() -> None:
    """A caller that passes a buffer expects the result there."""
    out = torch.full((3, 8), torch.nan)
    assert sample(**arguments(out=out))[1] is out
    assert out.eq(1).all()


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "missing": ({"x": None}, ("x is missing", "rows heads*width")),
    "rank": ({"x": torch.zeros(3)}, ("x is [3] float32", "2 dimensions")),
    "size": ({"x": torch.zeros(3, 9)}, ("x is [3, 9]", "expected [3, 8]")),
    "agree": ({"index": torch.zeros(4, dtype=torch.int32)}, ("index is [4]", "expected [3]")),
    "dtype": ({"x": torch.zeros(3, 8, dtype=torch.int64)}, ("x is [3, 8] int64", "float32 | bfloat16")),
    "strides": ({"x": torch.zeros(8, 3).t()}, ("x is [3, 8]", "contiguous")),
    "alignment": ({"x": torch.zeros(25)[1:].view(3, 8)}, ("x starts 4 bytes off", "16-byte")),
    "output": ({"out": torch.zeros(3, 7)}, ("out is [3, 7]", "expected [3, 8]")),
    "output dtype": ({"out_dtype": torch.int32}, ("out_dtype is int32", "float32 | bfloat16")),
    "parameter missing": ({"heads": ...}, ("parameter heads is missing", "int")),
    "parameter type": ({"heads": "2"}, ("heads='2'", "int")),
    "choice": ({"mode": "medium"}, ("mode='medium'", "fast", "slow")),
    "multiple": ({"x": torch.zeros(3, 12), "heads": 3}, ("heads=3", "multiple of 2")),
    "no array": ({"x": [[0.0] * 8] * 3}, ("x is [[0.0, ", "rows heads*width")),
    "in place": ({"x": (x := torch.zeros(3, 8)), "out": x}, ("out shares bytes with ['x']",)),
    "two outputs": (
        {"total": (y := torch.zeros(24))[20:], "out": y.view(3, 8)},
        ("total shares bytes with",),
    ),
    "unknown": ({"weight": torch.zeros(1)}, ("unknown argument ['weight']", "total")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_is_refused_with_words_that_help(case: str) -> None:
    """The message must name the kernel, the argument, what came and what would be right.

    Bytes that an output shares with another argument: the reference would read what it has just written.
    """
    changes, words = BAD[case]
    given = {name: value for name, value in arguments(**changes).items() if value is not ...}
    with pytest.raises(GraphError) as error:
        sample(**given)
    assert str(error.value).startswith("sample: ")
    for word in words:
        assert word in str(error.value)


def test_output_on_request_costs_nothing_until_it_is_wanted() -> None:
    """Callers that do not know of it get what they always got; asking by dtype or by array brings it."""

    @kernel(x=In("n"), out=Out("n", like="x"), double=Out("n", like="x", on_request=True))
    def copy(x: torch.Tensor, out: torch.Tensor, double: torch.Tensor | None) -> None:
        """x, and 2x."""
        out.copy_(x)
        if double is not None:
            torch.add(x, x, out=double)

    x = torch.ones(3)
    assert torch.equal(copy(x=x), x)
    assert [y.tolist() for y in copy(x=x, double_dtype=torch.float32)] == [[1.0] * 3, [2.0] * 3]
    mine = torch.empty(3)
    assert copy(x=x, double=mine)[1] is mine
    g = StaticGraph("g")
    assert isinstance(g.call(copy, x=g.constant("x", x)), Buffer)


def test_output_that_cannot_be_sized_asks_for_the_buffer() -> None:
    """A size that no argument determines must not be guessed."""

    @kernel(x=In("rows"), out=Out("rows columns"))
    def widen(x: torch.Tensor, out: torch.Tensor) -> None:
        """Any width."""
        out.copy_(x[:, None].expand_as(out))

    with pytest.raises(GraphError, match=r"widen: out \[rows columns\] cannot be sized; pass out="):
        widen(x=torch.zeros(2))
    assert widen(x=torch.zeros(2), out=torch.zeros(2, 5)).shape == (2, 5)


def test_declaration_and_reference_must_take_the_same_arguments() -> None:
    """Launches pass arguments by position: an order that differs would swap tensors."""
    with pytest.raises(GraphError, match="declares arguments"):

        @kernel(b=In("n"), a=In("n"))
        def swapped(a: torch.Tensor, b: torch.Tensor) -> None:
            """Wrong order."""
