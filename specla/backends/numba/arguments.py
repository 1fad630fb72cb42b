"""How arguments reach a kernel's machine code: a block of 64-bit words.

One word per argument: an integer, the bits of a float32, or the address of an array's descriptor
(its data's address, its shape, its strides in bytes). So a call is a few words for whoever walks a
step (entry, block, units, whether to share them), and the arrays of a recorded call can be
exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import as_dtype

Words = npt.NDArray[np.int64]

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_populate: Any = populate_array
_Tuple: Any = types.Tuple


def address_of(array: npt.NDArray[Any]) -> int:
    """Address of an array's first entry."""
    address: int = array.__array_interface__["data"][0]
    return address


def describe(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """An array's descriptor."""
    return (address_of(array), *array.shape, *array.strides)


class Layout:
    """What a kernel expects: Numba's types of all arguments but the range of units, in order."""

    def __init__(self, name: str, kinds: tuple[Any, ...]) -> None:
        self.name, self.kinds = name, kinds
        self._arrays = {
            i: (as_dtype(kind.dtype), kind.ndim, kind.layout == "C")
            for i, kind in enumerate(kinds)
            if isinstance(kind, types.Array)
        }

    def check(self, arguments: tuple[Any, ...]) -> None:
        """Raise TypeError where an argument isn't what the kernel was compiled for: machine code
        would read past it."""
        if len(arguments) != len(self.kinds):
            raise TypeError(f"{self.name} takes {len(self.kinds)} arguments, not {len(arguments)}")
        for i, (dtype, ndim, contiguous) in self._arrays.items():
            value = arguments[i]
            if value.dtype != dtype or value.ndim != ndim:
                raise TypeError(
                    f"argument {i} of {self.name} must be {dtype} with {ndim} axes; "
                    f"it is {value.dtype} with {value.ndim}"
                )
            if contiguous and not value.flags.c_contiguous:
                raise TypeError(f"argument {i} of {self.name} must be contiguous")

    def is_array(self, i: int) -> bool:
        """Whether argument i is an array, so that its word is an address."""
        return i in self._arrays

    def scalar(self, i: int, value: Any) -> int:
        """The word of argument i, an integer or a float32."""
        if self.kinds[i] == types.float32:
            return int(np.float32(value).view(np.int32))
        return int(value)


class Blocks:
    """Argument blocks and descriptors side by side in memory. Doesn't keep the arrays alive."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._addresses: list[int] = []  # places of words that count from the beginning
        self._places: dict[int, int] = {}

    def add(self, layout: Layout, arguments: tuple[Any, ...]) -> int:
        """Place of the block for a call. Every array must live until :meth:`build`."""
        layout.check(arguments)
        pointed = {i: self._place(value) for i, value in enumerate(arguments) if layout.is_array(i)}
        start = len(self._words)
        for i, value in enumerate(arguments):
            if i in pointed:
                self._addresses.append(start + i)
            self._words.append(pointed[i] if i in pointed else layout.scalar(i, value))
        return start

    def _place(self, array: npt.NDArray[Any]) -> int:
        if id(array) not in self._places:
            self._places[id(array)] = len(self._words)
            self._words += describe(array)
        return self._places[id(array)]

    def place_of(self, array: npt.NDArray[Any]) -> int | None:
        """Where an array's descriptor is, if any call takes it."""
        return self._places.get(id(array))

    def build(self) -> Words:
        """All words. Calls may be made as long as they exist and don't move."""
        words = np.array(self._words, np.int64)
        words[self._addresses] = 8 * words[self._addresses] + address_of(words)
        return words


def unpacker(kinds: tuple[Any, ...], ranged: bool) -> Any:
    """For compiled code: unpack(block, first, last) is the tuple (*arguments, first, last)."""
    result = _Tuple([*kinds, types.intp, types.intp] if ranged else list(kinds))

    def _unpack(typing_context: Any, block: Any, first: Any, last: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words = builder.inttoptr(values[0], _I64.as_pointer())
            items = []
            for i, kind in enumerate(kinds):
                word = builder.load(builder.gep(words, [ir.Constant(_I64, i)]))
                items.append(_argument(context, builder, kind, word))
            rest = values[1:] if ranged else []
            return context.make_tuple(builder, result, [*items, *rest])

        return result(types.intp, types.intp, types.intp), generate

    return intrinsic(_unpack)


def _argument(context: Any, builder: Any, kind: Any, word: Any) -> Any:
    """Code that makes a value of Numba's type ``kind`` out of a word."""
    if kind == types.float32:
        return builder.bitcast(builder.trunc(word, _I32), ir.FloatType())
    if not isinstance(kind, types.Array):
        wanted = context.get_value_type(kind)
        return word if wanted.width == 64 else builder.trunc(word, wanted)
    words = builder.inttoptr(word, _I64.as_pointer())
    fields = [
        builder.load(builder.gep(words, [ir.Constant(_I64, i)])) for i in range(1 + 2 * kind.ndim)
    ]
    array = context.make_array(kind)(context, builder)
    item = context.get_data_type(kind.dtype)
    _populate(
        array,
        data=builder.inttoptr(fields[0], item.as_pointer()),
        shape=fields[1 : 1 + kind.ndim],
        strides=fields[1 + kind.ndim :],
        itemsize=context.get_abi_sizeof(item),
        meminfo=None,
    )
    return array._getvalue()
