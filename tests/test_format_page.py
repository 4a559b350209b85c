"""docs/format.md: its example is what the code writes, and its names are those that the code uses."""

import re
from pathlib import Path
from uuid import UUID

import pytest

from pylog.segment_command import DAMAGED, SOUND, TORN, UNUSABLE
from pylog.storage import swap
from pylog.storage.batch import TRANSACTIONAL
from pylog.storage.inspect.findings import Report
from pylog.storage.inspect.verify import verify
from pylog.storage.log import LogConfig
from pylog.storage.manager import LogManager
from pylog.storage.records import Record, encode_batch
from pylog.storage.transactions import Marker, encode_marker
from tests.support.clock import SettableClock
from tests.support.logs import START_MS
from tests.support.simulated_files import SimulatedFiles

PAGE = (Path(__file__).parents[1] / "docs" / "format.md").read_text()
DATA = Path("/sim/data")
_EXAMPLE = re.compile(r"^`(t-0/\d{20}\.\w+)`\n\n```\n(.*?)```", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r"`((?:t-0/)?[a-z.-]+)` is `([^`]*)`")
_BYTES = re.compile(r"^(?:[0-9a-f]{2} )+(?= )", re.MULTILINE)


@pytest.fixture(scope="module")
def written() -> SimulatedFiles:
    files = SimulatedFiles()
    manager = LogManager([DATA], LogConfig(index_interval_bytes=0), files=files, clock=SettableClock())
    log = manager.open("t", 0, UUID("d23f1b52-93a4-4cf2-8d0c-5c1a8f7d4c11"))
    first = Record(0, START_MS, b"k1", b"v1", (("h", b"x"),))
    log.append(encode_batch([first, Record(1, START_MS + 5, None, b"hello")]), 3)
    record = Record(0, START_MS + 10, b"a", b"b")
    log.append(encode_batch([record], attributes=TRANSACTIONAL, producer_id=1000, producer_epoch=5, base_sequence=0), 3)
    log.append(encode_marker(1000, 5, Marker(commit=False, coordinator_epoch=9), START_MS + 20), 3)
    manager.close()
    return files


EXAMPLES = dict(_EXAMPLE.findall(PAGE))


def test_the_example_shows_every_file_of_the_partition(written: SimulatedFiles) -> None:
    shown = {*EXAMPLES, *dict(_TEXT.findall(PAGE))}
    there = {f"t-0/{name}" for name in written.sizes_in(DATA / "t-0")} | {"recovery-point-offset-checkpoint"}
    assert shown == there


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_bytes_on_the_page_are_those_that_are_written(written: SimulatedFiles, name: str) -> None:
    shown = bytes.fromhex("".join(_BYTES.findall(EXAMPLES[name])))
    assert shown.hex(" ") == (written.read(DATA / name) or b"").hex(" ")


@pytest.mark.parametrize("name", dict(_TEXT.findall(PAGE)))
def test_the_texts_on_the_page_are_those_that_are_written(written: SimulatedFiles, name: str) -> None:
    shown = dict(_TEXT.findall(PAGE))[name].replace("\\n", "\n")
    assert shown.encode() == written.read(DATA / name)


def test_the_example_is_sound(written: SimulatedFiles) -> None:
    found: list[object] = []
    verify(DATA, Report(found.append), files=written)
    assert found == []


def test_suffixes_and_exit_codes_are_those_of_the_code() -> None:
    for suffix in (swap.CLEANED, swap.SWAP, swap.DELETED):
        assert f"| `{suffix}` |" in PAGE
    for code, says in ((SOUND, "sound"), (DAMAGED, "damage"), (UNUSABLE, "wrong usage"), (TORN, "a torn tail")):
        assert f"| {code} | {says}" in PAGE
