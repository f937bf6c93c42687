"""Parses keys as people write them: text, or bytes in hexadecimal.

Each parser raises `ValueError` with a sentence for the user.
"""

from __future__ import annotations


def parse_hex(text: str) -> bytes:
    """Bytes as hexadecimal digits, with or without `0x` in front."""
    digits = text.strip()
    if digits[:2] in ("0x", "0X"):
        digits = digits[2:]
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError(f"{text!r} is not an even number of hexadecimal digits") from None


def parse_key(text: str) -> bytes:
    """A key as text; `0x...` gives its bytes in hexadecimal."""
    if text[:2] in ("0x", "0X"):
        return parse_hex(text)
    return text.encode("utf-8", "surrogateescape")
