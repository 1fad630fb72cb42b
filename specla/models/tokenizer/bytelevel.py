"""The byte-level alphabet: how a vocabulary writes arbitrary bytes as printable characters.

Every byte stands for one character: printable Latin-1 bytes for themselves, the other 68 for
U+0100, U+0101, ... in ascending order.
"""

from __future__ import annotations


def _printable(byte: int) -> bool:
    return 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte <= 0xFF


def _alphabet() -> str:
    letters = []
    stand_in = 0x100
    for byte in range(256):
        if _printable(byte):
            letters.append(chr(byte))
        else:
            letters.append(chr(stand_in))
            stand_in += 1
    return "".join(letters)


BYTE_LETTERS: str = _alphabet()
"""256 characters; the one at index b stands for byte b."""

_TO_LATIN1 = {ord(letter): chr(byte) for byte, letter in enumerate(BYTE_LETTERS)}
_LETTERS = frozenset(BYTE_LETTERS)


def letters_to_bytes(text: str) -> bytes:
    """The bytes that `text` stands for; text outside the alphabet stands for its own UTF-8."""
    if _LETTERS.issuperset(text):
        return text.translate(_TO_LATIN1).encode("latin-1")
    return text.encode("utf-8")


def bytes_to_letters(data: bytes) -> str:
    """`data` written in the byte-level alphabet; `letters_to_bytes` undoes it."""
    return "".join([BYTE_LETTERS[byte] for byte in data])
