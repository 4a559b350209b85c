"""Files and directories of the simulated disk: what a reader sees, and what a crash of the machine may leave of it.

`data` and `entries` are what the process sees. `durable_…` is what surely lies on the disk; `unsynced` are the changes
since then, in order. Applied to the durable state, all of them give what the process sees (unless a sync has failed).
After a crash of the machine any of these may be found, and `after_crash` picks one by chance:

a file:      - the durable bytes;
             - some first changes, the next write torn at any byte;
             - the same, but the lengths of all changes: what was not written reads as zeros;
             - blocks of BLOCK_BYTES, each as old or as new as it likes. A block is never torn within.
a directory: - some first changes of names;
             - any changes, but those of one name in order: none survives an earlier one that was lost.
               A rename changes two names at once, so a file that lost its new name still has its old one.

Old bytes never come back behind a truncation: file systems take care of that."""

from collections.abc import Callable
from random import Random

BLOCK_BYTES = 512  # what disks write whole

Change = tuple[int, bytes | None]  # a write at a position, or (None) a truncation to a size
NameChange = tuple[str | None, str | None, "Node | None"]  # the name that goes, the name that comes, what it stands for


def apply_change(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        resize(content, position)
    elif data:
        if position > len(content):
            resize(content, position)
        content[position : position + len(data)] = data


def resize(content: bytearray, size_bytes: int) -> None:
    del content[size_bytes:]
    content.extend(bytes(size_bytes - len(content)))


class SimulatedFile:
    __slots__ = ("_shared", "data", "durable_data", "modified_ms", "unsynced")

    def __init__(self, modified_ms: int, data: bytearray | None = None) -> None:
        """`data` is on the disk."""
        self.data = bytearray() if data is None else data
        self.durable_data = self.data
        self.unsynced: list[Change] = []
        self.modified_ms = modified_ms
        self._shared = True

    def fork(self) -> "SimulatedFile":
        """Bytes are copied when one of the two changes, so a fork of many files costs little."""
        twin = SimulatedFile(self.modified_ms, self.data)
        twin.durable_data = self.durable_data
        twin.unsynced = self.unsynced.copy()
        self._shared = True
        return twin

    def _own(self) -> None:
        if self._shared:
            self.data = bytearray(self.data)
            self.durable_data = bytearray(self.durable_data)
            self._shared = False

    def write(self, position: int, data: bytes, now_ms: int) -> None:
        if data:
            self._change(position, data, now_ms)

    def truncate(self, size_bytes: int, now_ms: int) -> None:
        self._change(size_bytes, None, now_ms)

    def _change(self, position: int, data: bytes | None, now_ms: int) -> None:
        self._own()
        apply_change(self.data, position, data)
        self.unsynced.append((position, data))
        self.modified_ms = now_ms

    def sync(self) -> None:
        self._own()
        for change in self.unsynced:
            apply_change(self.durable_data, *change)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """What was written counts as clean now, and no later sync will write it. Truncations are not lost: they are
        not in the pages that could not be written."""
        self.unsynced = [change for change in self.unsynced if change[1] is None]
        self.sync()

    def make_durable_as_it_is(self) -> None:
        self.durable_data = self.data
        self.unsynced.clear()
        self._shared = True

    def flip_bit(self, bit_number: int) -> None:
        self._own()
        self.data[bit_number // 8] ^= 1 << bit_number % 8
        self.make_durable_as_it_is()

    def after_crash(self, random: Random | None) -> "SimulatedFile":
        if random is None or not self.unsynced:
            return SimulatedFile(self.modified_ms, self._durable_copy())
        models: tuple[Callable[[Random], bytearray], ...] = (
            lambda _: self._durable_copy(),
            lambda random: self._torn(random, all_lengths=False),
            lambda random: self._torn(random, all_lengths=True),
            self._blocks_of_any_age,
        )
        return SimulatedFile(self.modified_ms, random.choice(models)(random))

    def _durable_copy(self) -> bytearray:
        return bytearray(self.durable_data)

    def _torn(self, random: Random, *, all_lengths: bool) -> bytearray:
        content = self._durable_copy()
        whole = random.randint(0, len(self.unsynced))
        for change in self.unsynced[:whole]:
            apply_change(content, *change)
        for position, data in self.unsynced[whole : whole + 1]:
            if data is not None:
                apply_change(content, position, data[: random.randint(0, len(data))])
        if all_lengths:
            for position, data in self.unsynced[whole:]:
                resize(content, position if data is None else max(len(content), position + len(data)))
        return content

    def _blocks_of_any_age(self, random: Random) -> bytearray:
        content = self._durable_copy()
        newest = len(self.unsynced) if random.random() < 0.5 else random.randint(0, len(self.unsynced))
        ages: dict[int, int] = {}  # block -> how many changes have reached it
        for number, (position, data) in enumerate(self.unsynced[:newest]):
            if data is None:
                resize(content, position)
                continue
            end = position + len(data)
            resize(content, max(len(content), end))
            for block in range(position // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1):
                if block not in ages:
                    ages[block] = random.choice((0, newest, random.randint(0, newest)))
                if number < ages[block]:
                    first, last = max(position, block * BLOCK_BYTES), min(end, (block + 1) * BLOCK_BYTES)
                    content[first:last] = data[first - position : last - position]
        return content


class SimulatedDirectory:
    __slots__ = ("durable_entries", "entries", "modified_ms", "unsynced")

    def __init__(self, modified_ms: int, entries: "dict[str, Node] | None" = None) -> None:
        """`entries` are on the disk."""
        self.entries: dict[str, Node] = entries or {}
        self.durable_entries = self.entries.copy()
        self.unsynced: list[NameChange] = []
        self.modified_ms = modified_ms

    def fork(self, forks: "dict[Node, Node]") -> "SimulatedDirectory":
        """`forks` knows every file and directory by its fork: what has two names, old and new, stays one."""
        twin = SimulatedDirectory(self.modified_ms)
        twin.entries = {name: fork(node, forks) for name, node in self.entries.items()}
        twin.durable_entries = {name: fork(node, forks) for name, node in self.durable_entries.items()}
        twin.unsynced = [(old, new, None if node is None else fork(node, forks)) for old, new, node in self.unsynced]
        return twin

    def change(self, old: str | None, new: str | None, node: "Node | None", now_ms: int) -> None:
        apply_name_change(self.entries, old, new, node)
        self.unsynced.append((old, new, node))
        self.modified_ms = now_ms

    def sync(self) -> None:
        for change in self.unsynced:
            apply_name_change(self.durable_entries, *change)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """No later sync will write these names."""
        self.unsynced.clear()

    def after_crash(self, random: Random | None) -> "SimulatedDirectory":
        entries = self.durable_entries.copy()
        if random is not None and self.unsynced:
            for change in random.choice((first_changes, changes_of_any_names))(self.unsynced, random):
                apply_name_change(entries, *change)
        survivors: dict[str, Node] = {name: node.after_crash(random) for name, node in entries.items()}
        return SimulatedDirectory(self.modified_ms, survivors)


Node = SimulatedFile | SimulatedDirectory


def fork(node: Node, forks: dict[Node, Node]) -> Node:
    twin = forks.get(node)
    if twin is None:
        twin = forks[node] = node.fork() if isinstance(node, SimulatedFile) else node.fork(forks)
    return twin


def apply_name_change(entries: dict[str, Node], old: str | None, new: str | None, node: Node | None) -> None:
    gone = None if old is None else entries.pop(old, None)
    if new is not None:
        assert node is not None
        if old is not None and gone is not node:  # a failed sync lost how it came to the name `old`
            for name in [name for name, other in entries.items() if other is node]:
                del entries[name]
        entries[new] = node


def first_changes(changes: list[NameChange], random: Random) -> list[NameChange]:
    return changes[: random.randint(0, len(changes))]


def changes_of_any_names(changes: list[NameChange], random: Random) -> list[NameChange]:
    lost: set[str | None] = set()
    kept: list[NameChange] = []
    for change in changes:
        names = {name for name in change[:2] if name is not None}
        if names & lost or random.random() < 0.5:
            lost |= names
        else:
            kept.append(change)
    return kept
