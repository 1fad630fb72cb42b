"""How arguments reach a kernel's machine code: a block of 64-bit words.

One word per argument: an integer, the bits of a float32, or the address of an array's descriptor
(its data's address, its shape, its strides in bytes). So a call is three words (entry, block,
units) for whoever walks a step, and the arrays of a recorded call can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
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


def describe(array: npt.NDArray[Any]) -> Words:
    """An array's descriptor."""
    return np.array([address_of(array), *array.shape, *array.strides], np.int64)


class Layout:
    """What a kernel expects: Numba's types of all arguments but the range of units, in order."""

    def __init__(self, name: str, kinds: tuple[Any, ...]) -> None:
        self.name, self.kinds = name, kinds
        self._wanted = [
            (as_dtype(kind.dtype), kind.ndim, kind.layout == "C")
            if isinstance(kind, types.Array)
            else None
            for kind in kinds
        ]

    def words(self, arguments: tuple[Any, ...], place: Callable[[Any], int]) -> Words:
        """The block of a call. place(array) makes an array's descriptor and says where it is.

        Raises TypeError where an argument isn't what the kernel was compiled for: machine code
        would read past it.
        """
        if len(arguments) != len(self.kinds):
            raise TypeError(f"{self.name} takes {len(self.kinds)} arguments, not {len(arguments)}")
        words = np.empty(len(arguments), np.int64)
        for i, (value, wanted) in enumerate(zip(arguments, self._wanted, strict=True)):
            if wanted is not None:
                dtype, ndim, contiguous = wanted
                if value.dtype != dtype or value.ndim != ndim:
                    raise TypeError(
                        f"argument {i} of {self.name} must be {dtype} with {ndim} axes; "
                        f"it is {value.dtype} with {value.ndim}"
                    )
                if contiguous and not value.flags.c_contiguous:
                    raise TypeError(f"argument {i} of {self.name} must be contiguous")
                words[i] = place(value)
            elif self.kinds[i] == types.float32:
                words[i] = np.float32(value).view(np.int32)
            else:
                words[i] = value
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
