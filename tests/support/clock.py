"""A clock that stands still until a test moves it."""


class SettableClock:
    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Backwards too: clocks of machines do that."""
        self._now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms
