"""Items of one size, such as sealed reports or hashes, concatenated in one byte string."""

from typing import TypeVar

B = TypeVar("B", bytes, memoryview)


def split_every(content: B, size: int) -> list[B]:
    """Split concatenated items of `size` bytes each. A remainder becomes a shorter last item."""
    return [content[start : start + size] for start in range(0, len(content), size)]
