"""Reads HDR histograms in their compressed V2 form, merges them, and gives percentiles.

Percentiles of several rounds must come from the merged histogram: the mean of percentiles is the percentile of
nothing. Format: HdrHistogram's ``V2CompressedEncoding``; the counts are zig-zag LEB128, a negative one stands for so
many empty slots.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence

COMPRESSED_COOKIE = 0x1C849304
PLAIN_COOKIE = 0x1C849303
#: The word size is in the cookie's second lowest half byte; it says nothing here.
COOKIE_MASK = 0xFFFFFF0F

Counts = dict[int, int]


def decode(text: str) -> Counts:
    """The counts of a histogram by value.

    :param text: base64 of the compressed form.
    :returns: for each slot that is not empty, its highest value and its count.
    :raises ValueError: for anything else.
    """
    data = base64.b64decode(text)
    try:
        cookie, length = struct.unpack_from(">II", data)
        if cookie & COOKIE_MASK != COMPRESSED_COOKIE & COOKIE_MASK:
            raise ValueError("not a compressed V2 histogram")
        plain = zlib.decompress(data[8 : 8 + length])
        cookie, length, offset, digits, lowest, _highest, ratio = struct.unpack_from(">IIIIQQd", plain)
    except (struct.error, zlib.error):
        raise ValueError("a histogram that is cut off") from None
    if cookie & COOKIE_MASK != PLAIN_COOKIE & COOKIE_MASK or offset or ratio != 1.0:
        raise ValueError("a histogram of an unknown form")
    counts: Counts = {}
    half, magnitude = _layout(digits, lowest)
    index = 0
    for count in _zigzag(plain[40 : 40 + length]):
        if count < 0:
            index -= count
            continue
        if count:
            counts[_highest_of(index, half, magnitude)] = count
        index += 1
    return counts


def merge(many: Iterable[Counts]) -> Counts:
    """The sum of histograms."""
    total: Counts = {}
    for counts in many:
        for value, count in counts.items():
            total[value] = total.get(value, 0) + count
    return total


def percentiles(counts: Counts, shares: Sequence[float]) -> list[int]:
    """The values below which the given shares (0 to 1, rising) of all counts lie; empty without counts."""
    total = sum(counts.values())
    if not total:
        return []
    values = sorted(counts)
    found = []
    at = seen = 0
    for share in shares:
        wanted = max(1, -int(-share * total // 1))
        while seen + counts[values[at]] < wanted and at < len(values) - 1:
            seen += counts[values[at]]
            at += 1
        found.append(values[at])
    return found


def _layout(digits: int, lowest: int) -> tuple[int, int]:
    """Slots of half a bucket (as a power of two), and the power of two of the unit."""
    resolution = 2 * 10**digits
    half_magnitude = max(resolution - 1, 1).bit_length() - 1
    return half_magnitude, max(lowest, 1).bit_length() - 1


def _highest_of(index: int, half_magnitude: int, unit: int) -> int:
    """The highest value that is counted in a slot."""
    half = 1 << half_magnitude
    bucket = (index >> half_magnitude) - 1
    sub = (index & (half - 1)) + half
    if bucket < 0:
        sub -= half
        bucket = 0
    return ((sub + 1) << (bucket + unit)) - 1


def _zigzag(data: bytes) -> Iterable[int]:
    """The signed numbers of a zig-zag LEB128 stream; a ninth byte has all its eight bits."""
    number = shift = 0
    for byte in data:
        if shift == 56:
            number |= byte << shift
        else:
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte & 0x80:
                continue
        yield (number >> 1) ^ -(number & 1)
        number = shift = 0
