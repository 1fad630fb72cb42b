"""Mutations: of the fields of a GGUF file, of bytes, and of texts put together from snippets."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

from tools.fuzz_readers.layout import ARRAY, SIZES, STRING, Key, Layout, Tensor, parse

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 257, 1023, 1024,
           4096, 4097, 65535, 65536, 1 << 17, 1 << 18, (1 << 20) + 1, 1 << 22, 1 << 24, 1 << 30,
           (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1,
           1 << 63, (1 << 64) - 1, (1 << 64) - 8)  # fmt: skip
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 1e38, 3e38, 1e300, 1e-300, 5e-324, 1e308,
         float("inf"), float("-inf"), float("nan"), 1.0000001, 1e4, 1e6, 2.0, 32.0)  # fmt: skip
STRINGS = (b"", b" ", b"\n", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"gpt2", b"qwen2", b"qwen35",
           b"dflash", b"dflash-draft", b"qwen35-dflash-draft", b"model", b"adapter", b"none",
           b"linear", b"yarn", b"a b", b"a  b", b"a", b"<|im_end|>", b"\x1b[31m", "é".encode(),
           "\u0120a".encode(), "\U0001f600".encode(), b"x" * 300, b"{{ 'x' * 10 ** 9 }}",
           b"{% for i in range(99999) %}{% endfor %}", b"A\r\nB")  # fmt: skip
_TYPES = (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
          26, 27, 28, 29, 30, 34, 35, 39, 40, 99, 1 << 31)  # fmt: skip
_FLOATS = {6: "<f", 12: "<d"}


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """A few flipped, overwritten, cut, doubled or moved bytes."""
    raw = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = (
            random.randrange(len(raw) + 1)
            if random.random() < 0.3
            else random.randrange(1 + min(len(raw), 2000))
        )
        choice = random.randrange(6)
        if choice == 0 and raw:
            raw[at % len(raw)] ^= 1 << random.randrange(8)
        elif choice == 1 and raw:
            raw[at % len(raw)] = random.choice((0, 255, 127, 128, random.randrange(256)))
        elif choice == 2:
            raw[at : at + 8] = struct.pack("<Q", random.choice(NUMBERS))
        elif choice == 3:
            raw[at : at + 4] = struct.pack("<I", random.choice(NUMBERS) & 0xFFFFFFFF)
        elif choice == 4:
            del raw[at : at + random.choice((1, 4, 8, 64, len(raw)))]
        else:
            raw[at:at] = raw[at : at + random.choice((1, 4, 8, 64))]
    return bytes(raw)


def mutate_gguf(data: bytes, random: Random, focus: Sequence[str] = ()) -> bytes:
    """One to four changes of fields; now and then of bytes as well.

    focus: names of the changes below to prefer.
    """
    layout = parse(data)
    if layout is None or random.random() < 0.1:
        return mutate_bytes(data, random)
    names = list(focus) * 3 + list(CHANGES)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        CHANGES[random.choice(names)](layout, random)
    built = layout.build()
    return mutate_bytes(built, random) if random.random() < 0.05 else built


def mutate_text(text: str, random: Random, snippets: Sequence[str]) -> str:
    """Parts of a text cut, doubled, moved, or replaced by snippets."""
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        at = random.randrange(len(text) + 1)
        end = min(len(text), at + random.choice((0, 1, 3, 10, 40)))
        choice = random.randrange(5)
        if choice == 0:
            text = text[:at] + text[end:]
        elif choice == 1:
            text = text[:at] + text[at:end] * random.choice((2, 3, 30)) + text[end:]
        elif choice == 2:
            other = random.randrange(len(text) + 1)
            text = text[:other] + text[at:end] + text[other:]
        else:
            text = text[:at] + random.choice(snippets) + text[end if choice == 3 else at :]
    return text


def _number(random: Random, size: int) -> bytes:
    value = random.choice(NUMBERS) if random.random() < 0.8 else random.getrandbits(8 * size)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _value(random: Random, kind: int) -> bytes:
    if kind == STRING:
        return random.choice(STRINGS)
    if kind in _FLOATS and random.random() < 0.8:
        real = random.choice(REALS)
        return struct.pack(_FLOATS[kind], real if kind == 12 or abs(real) < 3e38 else 3e38)
    return _number(random, SIZES.get(kind, 4))


def _a_key(layout: Layout, random: Random) -> Key:
    if not layout.keys:
        layout.keys.append(Key(b"general.name", STRING, STRING, [b"x"]))
    return random.choice(layout.keys)


def _a_tensor(layout: Layout, random: Random) -> Tensor:
    if not layout.tensors:
        layout.tensors.append(Tensor(b"token_embd.weight", [32, 1], 0, 0))
    return random.choice(layout.tensors)


def _change_value(layout: Layout, random: Random) -> None:
    key = _a_key(layout, random)
    if not key.values:
        return
    key.values[random.randrange(len(key.values))] = _value(random, key.item)


def _change_type(layout: Layout, random: Random) -> None:
    key = _a_key(layout, random)
    item = random.choice((*SIZES, STRING))
    is_array = random.random() < 0.4
    key.type, key.item = (ARRAY if is_array else item), item
    count = random.choice((0, 1, 3, 4, 8)) if is_array else 1
    key.values = [_value(random, item) for _ in range(count)]


def _claim_type(layout: Layout, random: Random) -> None:
    key = _a_key(layout, random)
    if random.random() < 0.5:
        key.item = random.choice((*SIZES, STRING, ARRAY, 13, 99))
    else:
        key.type = random.choice((*SIZES, STRING, ARRAY, 13, 99))


def _claim_count(layout: Layout, random: Random) -> None:
    target = random.randrange(3)
    value = random.choice(NUMBERS)
    if target == 0:
        layout.n_keys = value
    elif target == 1:
        layout.n_tensors = value
    else:
        _a_key(layout, random).count = value


def _change_array(layout: Layout, random: Random) -> None:
    arrays = [key for key in layout.keys if key.type == ARRAY]
    if not arrays:
        return
    key = random.choice(arrays)
    at = random.randrange(len(key.values) + 1)
    choice = random.randrange(4)
    if choice == 0:
        del key.values[at : at + random.choice((1, 2, 64, len(key.values) + 1))]
    elif choice == 1:
        key.values[at:at] = [_value(random, key.item) for _ in range(random.choice((1, 4)))]
    elif choice == 2:
        key.values[at:at] = key.values[at : at + random.choice((1, 8))]
    elif key.values:
        a, b = random.randrange(len(key.values)), random.randrange(len(key.values))
        key.values[a] = key.values[a] + key.values[b] if key.item == STRING else key.values[b]


def _change_keys(layout: Layout, random: Random) -> None:
    key = _a_key(layout, random)
    choice = random.randrange(4)
    if choice == 0:
        layout.keys.remove(key)
    elif choice == 1:
        layout.keys.append(Key(key.name, key.type, key.item, list(key.values)))
    elif choice == 2:
        key.name = random.choice((*STRINGS, _a_key(layout, random).name, key.name + b"x"))
    else:
        layout.keys.append(_extra_key(layout, random))


EXTRA = (("general.alignment", 4), ("general.type", 8), ("expert_count", 4), ("logit_scale", 6),
         ("nextn_predict_layers", 4), ("rope.scaling.type", 8), ("rope.scaling.factor", 6),
         ("rope.scaling.original_context_length", 4), ("rope.scaling.yarn_beta_fast", 12),
         ("rope.scaling.yarn_ext_factor", 12), ("rope.scaling.attn_factor", 12),
         ("attention.sliding_window", 4), ("attention.sliding_window_pattern", 7),
         ("attention.recurrent_layers", 7), ("vocab_size", 4), ("selector_top_k", 4),
         ("conv_group_size", 4), ("conv_kernel_size", 4), ("selector_rank", 4),
         ("tokenizer.ggml.eot_token_id", 4), ("tokenizer.ggml.bos_token_id", 4),
         ("tokenizer.ggml.add_bos_token", 7), ("tokenizer.chat_template", 8),
         ("split.count", 2), ("split.no", 2))  # fmt: skip
"""Keys that no seed has: name (those without a known prefix get the architecture's), type."""


def _extra_key(layout: Layout, random: Random) -> Key:
    name, kind = random.choice(EXTRA)
    found = layout.key(b"general.architecture")
    own = found.values[0] if found and found.values else b"qwen35"
    prefixed = name.startswith(("general.", "tokenizer.", "split."))
    full = name.encode() if prefixed else own + b"." + name.encode()
    if random.random() < 0.2 or name.endswith(("pattern", "layers")):
        return Key(full, ARRAY, kind, [_value(random, kind) for _ in range(random.randrange(4))])
    return Key(full, kind, kind, [_value(random, kind)])


def _change_dims(layout: Layout, random: Random) -> None:
    dims = _a_tensor(layout, random).dims
    choice = random.randrange(5)
    if choice == 0 or not dims:
        dims.insert(random.randrange(len(dims) + 1), random.choice((1, 1, 2, *NUMBERS)))
    elif choice == 1:
        del dims[random.randrange(len(dims))]
    elif choice == 2:
        dims.reverse()
    elif choice == 3 and len(dims) > 1:
        dims[:2] = [dims[0] * dims[1]]
    else:
        dims[random.randrange(len(dims))] = random.choice(NUMBERS)


def _change_tensor(layout: Layout, random: Random) -> None:
    tensor, other = _a_tensor(layout, random), _a_tensor(layout, random)
    choice = random.randrange(6)
    if choice == 0:
        tensor.type = random.choice(_TYPES)
    elif choice == 1:
        tensor.offset = random.choice((*NUMBERS, other.offset, tensor.offset + 32))
    elif choice == 2:
        tensor.name, other.name = other.name, tensor.name
    elif choice == 3:
        layout.tensors.remove(tensor)
    elif choice == 4:
        tensor.name = random.choice((*STRINGS, tensor.name + b".scale", other.name))
    else:
        layout.tensors.append(Tensor(other.name, list(other.dims), other.type, other.offset))


def _change_data(layout: Layout, random: Random) -> None:
    data = bytearray(layout.data)
    for _ in range(random.choice((1, 4, 64))):
        if data:
            at = random.randrange(len(data))
            data[at] = random.choice((0, 255, 127, 128, 0x7C, 0xFC, random.randrange(256)))
    if random.random() < 0.2:
        del data[random.randrange(len(data) + 1) :]
    layout.data = bytes(data)


def _change_frame(layout: Layout, random: Random) -> None:
    choice = random.randrange(4)
    if choice == 0:
        layout.version = random.choice((0, 1, 2, 3, 4, 1 << 24, 3 << 24, (1 << 32) - 1))
    elif choice == 1:
        layout.magic = random.choice((b"GGUF", b"GGML", b"FUGG", b"\x00\x00\x00\x00", b"GGU"))
    elif choice == 2:
        layout.padding = random.choice((1, 8, 16, 64, 4096))
    else:
        layout.tail = bytes(random.choice((1, 31, 64)))


CHANGES: dict[str, Callable[[Layout, Random], None]] = {
    "value": _change_value,
    "type": _change_type,
    "claimed type": _claim_type,
    "count": _claim_count,
    "array": _change_array,
    "keys": _change_keys,
    "dims": _change_dims,
    "tensor": _change_tensor,
    "data": _change_data,
    "frame": _change_frame,
}
