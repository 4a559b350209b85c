"""How far groups are behind, in seconds: the age of the first record behind what they have committed.

That takes a look into the log's files, which may be cold. A thread does it, some at a time, never the loop; what it
found for an offset stays true, so only groups that move and are behind cost a look. There is a limit to the looks of
one round: who misses it is among the first of the next one.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pylog.storage import peek
from pylog.storage.log import PartitionLog
from pylog.storage.ports import FileSystem

LOOKS_MAX = 2_000  # in one round: some tenths of a second of a thread
_TOGETHER = 50
_KEPT_AT_ONCE = 500

Want = tuple[PartitionLog, int]  # and an offset


class FirstTimes:
    """When the first record at an offset was written; remembered as long as somebody asks for it."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._known: dict[Want, int | None] = {}
        self._left_out: set[PartitionLog] = set()  # of the last round
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lag")
        self._looking = asyncio.Lock()  # two who ask at once wait for one look

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def get(self, want: Want) -> int | None:
        return self._known.get(want)

    async def look_up(self, wanted: Sequence[Want]) -> None:
        async with self._looking:
            missing = await self._keep(wanted)
            now, left = missing[:LOOKS_MAX], missing[LOOKS_MAX:]
            self._left_out = {log for log, _ in left}
            loop = asyncio.get_running_loop()
            for start in range(0, len(now), _TOGETHER):
                some = now[start : start + _TOGETHER]
                places = [(log.directory, offset) for log, offset in some]
                found = await loop.run_in_executor(self._thread, self._look, places)
                self._known.update(zip(some, found, strict=True))

    async def _keep(self, wanted: Sequence[Want]) -> list[Want]:
        """Forget what nobody wants; what is wanted and not known, those that were left out last time first."""
        known: dict[Want, int | None] = {}
        first: dict[Want, None] = {}
        others: dict[Want, None] = {}
        for number, want in enumerate(wanted):
            if want in self._known:
                known[want] = self._known[want]
            elif want[0] in self._left_out:
                first[want] = None
            else:
                others[want] = None
            if number % _KEPT_AT_ONCE == 0:
                await asyncio.sleep(0)  # the loop has other things to do
        self._known = known
        return [*first, *others]

    def _look(self, places: list[tuple[Path, int]]) -> list[int | None]:
        return [peek.first_timestamp_ms(self._files, directory, offset) for directory, offset in places]
