# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""How a kernel is declared: arguments (roles, dtypes, symbolic shapes), parameters, a reference in torch.

A declaration is read by the graph (validation, output allocation, launches), by the tests and by whoever
writes a faster launch for another device. Shapes are strings of dimensions separated by blanks; a dimension
is an integer, a symbol or arithmetic without blanks: ``"rows 3*width"``. A lone symbol binds where it is
first met, every other use must agree; integer parameters of the kernel are symbols too.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, get_origin, runtime_checkable

import torch

from flashrt_kernels.errors import GraphError

FLOAT = (torch.float32, torch.bfloat16)
FLOAT32 = (torch.float32,)
FLOAT8 = (torch.float8_e4m3fn,)
INT32 = (torch.int32,)
UINT8 = (torch.uint8,)
BOOL = (torch.bool,)

Dtypes = tuple[torch.dtype, ...]
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@runtime_checkable
class Array(Protocol):
    """What validation looks at: a torch tensor or a buffer of a graph."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> torch.dtype: ...


@dataclass(frozen=True)
class Argument:
    """One array argument.

    align: address alignment in bytes that a launch may rely on; 0: one element.
    early: a parameter that says how many leading rows a launch may read while those in front of it still run.
    on_request: an output that exists only where the caller gives it or its dtype.
    """

    role: Literal["in", "out", "inout"]
    shape: str
    dtypes: Dtypes = FLOAT
    like: str | None = None  # an output takes the dtype of this argument unless told otherwise
    optional: bool = False
    align: int = 0
    on_request: bool = False
    early: str = ""

    @property
    def written(self) -> bool:
        return self.role != "in"


def In(
    shape: str, dtypes: Dtypes = FLOAT, *, optional: bool = False, align: int = 0, early: str = ""
) -> Argument:
    """An array that the kernel only reads."""
    return Argument("in", shape, dtypes, None, optional, align, early=early)


def Out(
    shape: str,
    dtypes: Dtypes = FLOAT,
    *,
    like: str | None = None,
    optional: bool = False,
    align: int = 0,
    on_request: bool = False,
) -> Argument:
    """An array that the kernel overwrites completely; allocated when the caller gives none.

    on_request: written and returned only where the caller gives it, or `<output>_dtype` to have it allocated.
    """
    return Argument("out", shape, dtypes, like, optional or on_request, align, on_request)


def InOut(shape: str, dtypes: Dtypes = FLOAT, *, align: int = 0) -> Argument:
    """An array that the kernel reads and updates."""
    return Argument("inout", shape, dtypes, None, False, align)


@dataclass(frozen=True)
class Call:
    """A validated call: every argument in place except the outputs still to be allocated (shape, dtype)."""

    arguments: dict[str, Any]
    parameters: dict[str, Any]
    allocate: dict[str, tuple[tuple[int, ...], torch.dtype]]


class Kernel:
    """A declared kernel. Calling it validates, allocates missing outputs and runs the reference."""

    def __init__(
        self,
        reference: Callable[..., None],
        arguments: Mapping[str, Argument],
        multiples: Sequence[tuple[str, str]],
    ) -> None:
        self.reference = reference
        self.name = reference.__name__
        self.__doc__ = reference.__doc__
        self.arguments = dict(arguments)
        signature = inspect.signature(reference, eval_str=True)
        self.parameters = {p.name: p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        self.multiples = tuple(multiples)
        self._shapes = {
            name: tuple(ast.parse(dim, mode="eval").body for dim in a.shape.split())
            for name, a in self.arguments.items()
        }
        positional = [p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        if positional != list(self.arguments):
            raise GraphError(
                f"{self.name}: declares arguments {list(self.arguments)}, its reference takes {positional}"
            )

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arguments that the kernel writes."""
        return tuple(name for name, argument in self.arguments.items() if argument.written)

    def __call__(self, **given: Any) -> Any:
        """Run the reference now. Returns the output, or a tuple when the kernel writes several.

        Raises GraphError where an argument breaks the declaration or an output shares bytes with another one.
        """
        call = self.validate(given)
        arguments = dict(call.arguments)
        self._check_memory({name: array for name, array in arguments.items() if array is not None})
        device = next(a.device for a in arguments.values() if a is not None)
        for name, (shape, dtype) in call.allocate.items():
            arguments[name] = torch.empty(shape, dtype=dtype, device=device)
        self.reference(**arguments, **call.parameters)
        return self.results(arguments)

    def results(self, arguments: Mapping[str, Any]) -> Any:
        """What a call returns: its output, or a tuple of several; None stands for one that was refused."""
        written = [
            array
            for name in self.outputs
            if (array := arguments[name]) is not None or not self.arguments[name].on_request
        ]
        return written[0] if len(written) == 1 else tuple(written)

    def _check_memory(self, arguments: Mapping[str, Any]) -> None:
        for name, array in arguments.items():
            if not isinstance(array, torch.Tensor):
                came = type(array).__name__
                raise GraphError(f"{self.name}: {name} is a {came}; expected a tensor (in a graph, use call)")
        ranges = {name: byte_range(array) for name, array in arguments.items()}
        for name in (name for name in self.outputs if name in ranges):
            start, stop = ranges.pop(name)
            shared = [other for other, (first, last) in ranges.items() if max(start, first) < min(stop, last)]
            if shared:
                raise GraphError(f"{self.name}: {name} shares bytes with {shared}")

    def validate(self, given: Mapping[str, Any]) -> Call:
        """Check a call against the declaration.

        `given` holds arrays, parameters and, for an output that is to be allocated, `<output>_dtype`.
        Raises GraphError naming kernel, argument, what came and what would be right.
        """
        given = dict(given)
        parameters = self._take_parameters(given)
        symbols = {name: value for name, value in parameters.items() if isinstance(value, int)}
        dtypes = {name: given.pop(f"{name}_dtype", None) for name in self.outputs}
        arguments: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            wanted = not argument.on_request or dtypes.get(name) is not None
            if name not in given and argument.role == "out" and wanted:
                continue
            array = arguments[name] = given.pop(name, None)
            if array is not None:
                self._check_array(name, argument, array, symbols)
            elif not argument.optional:
                raise GraphError(f"{self.name}: {name} is missing; expected {describe(argument)}")
        if given:
            known = [*self.arguments, *self.parameters]
            raise GraphError(f"{self.name}: unknown argument {sorted(given)}; it takes {known}")
        for larger, smaller in self.multiples:
            big, small = symbols[larger], symbols[smaller] if smaller in symbols else int(smaller)
            if small < 1 or big % small:
                raise GraphError(f"{self.name}: {larger}={big} must be a multiple of {smaller}={small}")
        allocate = {
            name: (self._shape(name, symbols), self._output_dtype(name, arguments, dtypes[name]))
            for name in self.outputs
            if name not in arguments
        }
        return Call(arguments, parameters, allocate)

    def _take_parameters(self, given: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            value = given.pop(name, parameter.default)
            if value is parameter.empty:
                raise GraphError(
                    f"{self.name}: parameter {name} is missing; expected {parameter.annotation.__name__}"
                )
            choices = get_args(parameter.annotation) if get_origin(parameter.annotation) is Literal else None
            expected = choices or parameter.annotation
            numeric = expected is float and isinstance(value, int) and not isinstance(value, bool)
            if not (value in choices if choices else numeric or type(value) is expected):
                raise GraphError(f"{self.name}: parameter {name}={value!r}; expected {expected}")
            values[name] = value
        return values

    def _check_array(self, name: str, argument: Argument, array: Array, symbols: dict[str, int]) -> None:
        if not (
            hasattr(array, "shape") and hasattr(array, "dtype")
        ):  # isinstance(…, Array) takes ten times as long
            raise GraphError(f"{self.name}: {name} is {array!r}; expected {describe(argument)}")
        came = f"{list(array.shape)} {short(array.dtype)}"
        if array.dtype not in argument.dtypes:
            raise GraphError(f"{self.name}: {name} is {came}; expected {describe(argument)}")
        dims = self._shapes[name]
        if len(dims) != len(array.shape):
            raise GraphError(
                f"{self.name}: {name} is {came}; expected {len(dims)} dimensions, {describe(argument)}"
            )
        for dim, size in zip(dims, array.shape, strict=True):
            if isinstance(dim, ast.Name) and dim.id not in symbols:
                symbols[dim.id] = size
            right = evaluate(dim, symbols)
            if right is None:
                raise GraphError(
                    f"{self.name}: {name}: cannot tell {ast.unparse(dim)} from the arguments before it"
                )
            if right != size:
                wanted = [evaluate(d, symbols) or ast.unparse(d) for d in dims]
                raise GraphError(f"{self.name}: {name} is {came}; expected {wanted} = [{argument.shape}]")
        if isinstance(array, torch.Tensor) and not array.is_contiguous():
            raise GraphError(
                f"{self.name}: {name} is {came} with strides {array.stride()}; expected a contiguous array"
            )
        self._check_alignment(name, argument, array)

    def _check_alignment(self, name: str, argument: Argument, array: Any) -> None:
        address = array.data_ptr() if isinstance(array, torch.Tensor) else array.offset
        align = argument.align or array.dtype.itemsize
        if address % align:
            raise GraphError(
                f"{self.name}: {name} starts {address % align} bytes off; expected {align}-byte alignment"
            )

    def _shape(self, name: str, symbols: Mapping[str, int]) -> tuple[int, ...]:
        sizes = [evaluate(dim, symbols) for dim in self._shapes[name]]
        if any(size is None for size in sizes):
            raise GraphError(
                f"{self.name}: {name} [{self.arguments[name].shape}] cannot be sized; pass {name}="
            )
        return tuple(size for size in sizes if size is not None)

    def _output_dtype(
        self, name: str, arguments: Mapping[str, Any], wanted: torch.dtype | None
    ) -> torch.dtype:
        argument = self.arguments[name]
        dtype = wanted or (arguments[argument.like].dtype if argument.like else argument.dtypes[0])
        if dtype not in argument.dtypes:
            raise GraphError(f"{self.name}: {name}_dtype is {short(dtype)}; expected {describe(argument)}")
        return dtype

    def __repr__(self) -> str:
        declared = ", ".join(f"{name}: {a.role} [{a.shape}]" for name, a in self.arguments.items())
        return f"<kernel {self.name}({declared})>"


def kernel(
    *, multiples: Sequence[tuple[str, str]] = (), **arguments: Argument
) -> Callable[[Callable[..., None]], Kernel]:
    """Declare a kernel; the decorated function is its reference and writes its outputs in place.

    `multiples` lists (a, b): symbol a must be a multiple of b (a symbol or a number).
    """
    return lambda reference: Kernel(reference, arguments, multiples)


def evaluate(dim: ast.expr, symbols: Mapping[str, int]) -> int | None:
    """Value of one dimension; None while it uses a symbol that is not bound."""
    if isinstance(dim, ast.Constant):
        return int(dim.value)  # type: ignore[arg-type]
    if isinstance(dim, ast.Name):
        return symbols.get(dim.id)
    if isinstance(dim, ast.BinOp):
        left, right = evaluate(dim.left, symbols), evaluate(dim.right, symbols)
        return None if left is None or right is None else OPERATORS[type(dim.op)](left, right)
    raise GraphError(f"dimension {ast.unparse(dim)!r}: only integers, symbols and + - * // are allowed")


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses [start, end) of a contiguous tensor."""
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def describe(argument: Argument) -> str:
    """`[rows width] float32 | bfloat16` for messages."""
    return f"[{argument.shape}] {' | '.join(short(dtype) for dtype in argument.dtypes)}"


def short(dtype: torch.dtype) -> str:
    """`float32` instead of `torch.float32`."""
    return str(dtype).removeprefix("torch.")
