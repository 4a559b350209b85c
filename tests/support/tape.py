"""What chance decides, byte by byte: hypothesis makes the tape, shortens it, and writes zeros where nothing matters."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Tape:
    """Zero is the harmless choice, and all there is behind the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def number(self) -> int:
        self._at += 1
        return 0 if self._at > len(self._data) else self._data[self._at - 1]

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.number() % len(choices)]

    def happens(self, of_256: int) -> bool:
        return self.number() >= 256 - of_256
