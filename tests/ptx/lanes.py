"""The threads of several blocks side by side: registers as vectors, and who takes part."""

from __future__ import annotations

import numpy as np

from ptx.errors import PtxError, UnsupportedError
from ptx.memory import Memory
from ptx.parse import Address, Immediate, Instruction, Label, Operand, Register
from ptx.scalars import Array, numpy_type, unsigned

WARP = 32


class Lanes:
    """One lane per thread of ``blocks`` (their ids [blocks, 3]), block after block.

    active: [lanes] of bool, the threads that execute the present instruction; None is all.
    """

    def __init__(
        self,
        blocks: Array,
        grid: tuple[int, int, int],
        threads: int,
        shared_size: int,
        memory: Memory,
        parameters: dict[str, int],
    ) -> None:
        self.count = len(blocks) * threads
        self.threads = threads
        self.memory = memory
        self.parameters = parameters
        self.shared, stride = Memory.of_blocks("shared memory", shared_size, len(blocks))
        self.shared_size = shared_size
        self.shared_base = np.repeat(np.arange(len(blocks), dtype=np.int64) * stride, threads)
        self.active: Array | None = None
        self.lane = np.arange(self.count, dtype=np.int64) % WARP
        self.first_of_warp = np.arange(self.count, dtype=np.int64) - self.lane
        self._registers: dict[str, Array] = {}
        self._constants: dict[tuple[int, type], Array] = {}
        self._special = self._specials(blocks, grid)

    def _specials(self, blocks: Array, grid: tuple[int, int, int]) -> dict[str, Array]:
        thread = np.tile(np.arange(self.threads, dtype=np.uint32), len(blocks))
        special = {
            "%laneid": thread % np.uint32(WARP),
            "%warpid": thread // np.uint32(WARP),
            "%tid.x": thread,
            "%ntid.x": self.splat(self.threads, np.uint32),
        }
        for axis, letter in enumerate("xyz"):
            special[f"%ctaid.{letter}"] = np.repeat(blocks[:, axis].astype(np.uint32), self.threads)
            special[f"%nctaid.{letter}"] = self.splat(grid[axis], np.uint32)
            if axis:
                special[f"%tid.{letter}"] = self.splat(0, np.uint32)
                special[f"%ntid.{letter}"] = self.splat(1, np.uint32)
        return special

    def splat(self, value: int, dtype: type) -> Array:
        """The same bits in every lane; not to be changed."""
        known = self._constants.get((value, dtype))
        if known is None:
            bits = unsigned(np.dtype(dtype).itemsize * 8)
            known = np.full(self.count, value & int(np.iinfo(bits).max), bits).view(dtype)
            self._constants[value, dtype] = known
        return known

    # -- reading ---------------------------------------------------------------------------

    def bits(self, operand: Operand) -> Array:
        """A register as it is."""
        if not isinstance(operand, Register):
            raise UnsupportedError(f"operand {operand}")
        if operand.special:
            return self._special[operand.name]
        if operand.name not in self._registers:
            raise PtxError(f"{operand.name} is read before it is written")
        return self._registers[operand.name]

    def read(self, operand: Operand, dtype: type) -> Array:
        """An operand as ``dtype``: the low part of a wide register, zeros above a narrow one."""
        if isinstance(operand, Immediate):
            return self.splat(operand.value, dtype)
        if isinstance(operand, Label) and operand.name in self.parameters:
            # where a parameter lies: its number, for nobody may count on the layout
            return self.splat(list(self.parameters).index(operand.name), dtype)
        bits = self._registers.get(operand.name) if isinstance(operand, Register) else None
        if bits is None:
            bits = self.bits(operand)
        wanted = np.dtype(dtype)
        if bits.itemsize != wanted.itemsize:
            bits = bits.astype(unsigned(wanted.itemsize * 8))
        return bits.view(wanted)

    def perhaps(self, operand: Operand, dtype: type) -> Array:
        """The same; ones if nobody has written the register, as for lanes that left it out."""
        unknown = isinstance(operand, Register) and not operand.special
        if unknown and operand.name not in self._registers:
            return self.splat(-1, dtype)
        return self.read(operand, dtype)

    def typed(self, operand: Operand, kind: str) -> Array:
        """An operand as the PTX type ``kind``."""
        return self.read(operand, numpy_type(kind))

    def predicate(self, operand: Operand) -> Array:
        """bool of each lane."""
        if isinstance(operand, Immediate):
            return np.full(self.count, operand.value != 0)
        return self.bits(operand)

    # -- writing ---------------------------------------------------------------------------

    def write(self, operand: Operand, value: Array) -> None:
        """To the register, for active lanes. A narrow value is extended by its sign, if signed."""
        if isinstance(operand, Label) and operand.name == "_":
            return
        if not isinstance(operand, Register) or operand.special:
            raise UnsupportedError(f"destination {operand}")
        if value.dtype.kind == "f":
            value = value.view(unsigned(value.dtype.itemsize * 8))
        # a copy: operands may be views of other registers
        new = value.astype(unsigned(operand.bits))
        if self.active is not None:
            old = self._registers.get(operand.name)
            if old is None:
                poison = True if operand.bits == 1 else np.iinfo(new.dtype).max
                old = np.full(self.count, poison, new.dtype)
            new = np.where(self.active, new, old)
        self._registers[operand.name] = new

    # -- memory ----------------------------------------------------------------------------

    def addresses(self, operand: Operand, space: str) -> tuple[Memory, Array]:
        """Where active lanes point: a memory, and an address [active lanes] in it."""
        if not isinstance(operand, Address) or isinstance(operand.base, str):
            raise UnsupportedError(f"address {operand}")
        if isinstance(operand.base, int):
            base = self.splat(operand.base, np.int64)
        else:
            base = self.bits(operand.base).astype(np.int64)
        at = self.only_active(base + operand.offset)
        if space == "global":
            return self.memory, at
        # of 32 bits: a base may lie below 0 if the offset leads back
        at &= 0xFFFFFFFF
        if at.size and at.max() >= self.shared_size:
            raise PtxError("shared memory: an access is out of bounds")
        return self.shared, at + self.only_active(self.shared_base)

    def only_active(self, value: Array) -> Array:
        return value if self.active is None else value[self.active]

    def spread(self, value: Array) -> Array:
        """Values of active lanes into their places."""
        if self.active is None:
            return value
        whole = np.zeros(self.count, value.dtype)
        whole[self.active] = value
        return whole

    # -- who takes part ----------------------------------------------------------------------

    def whole(self, instruction: Instruction, size: int) -> None:
        """Refuse unless groups of ``size`` lanes (a warp, a block) take part as a whole."""
        if self.active is None:
            return
        taking_part = self.active.reshape(-1, size)
        if (taking_part.any(axis=1) != taking_part.all(axis=1)).any():
            group = "warp" if size == WARP else "block"
            raise PtxError(f"only a part of a {group} reaches {instruction.text!r}")
