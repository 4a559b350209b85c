"""What a request may become in memory: the estimate is no less than what it takes, and the bound holds for all."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.protocol import (
    allowance,
    create_partitions,
    delete_topics,
    fetch,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    schema,
)
from pylog.broker_lite.protocol.allowance import DECODED_BYTES_MAX, ELEMENT_BYTES_MIN, SLOT_BYTES, UNCOUNTED_BYTES_MAX
from pylog.broker_lite.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pylog.broker_lite.protocol.delete_topics import DeleteTopicsRequest
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.schema import Spec
from pylog.broker_lite.protocol.spec import ApiSpec
from pylog.broker_lite.protocol.wire import MalformedFrame

COUNT = 2_000
BIG = {"I8": -100, "I16": 1 << 14, "I32": 1 << 30, "I64": 1 << 62, "F64": 0.5, "uuid": UUID(int=1 << 127)}
Path = tuple[str, ...]
REFUSED = "DECODED_BYTES_MAX"


def arrays(cls: Any, version: int) -> Iterator[Path]:
    for name, spec in cls.specs.items():
        if spec.kind == "array" and spec.carried_by(version):
            yield (name,)
            if isinstance(spec.element, type):
                yield from ((name, *path) for path in arrays(spec.element, version))


def element_at(cls: Any, path: Path) -> Any:
    for name in path:
        cls = cls.specs[name].element
    return cls


def with_many(cls: Any, path: Path, text: str) -> Any:
    """As many elements where the path ends; numbers are large, all else is as small as can be."""
    return cls(
        **{name: _value(spec, path[1:] if path[:1] == (name,) else None, text) for name, spec in cls.specs.items()}
    )


def _value(spec: Spec, path: Path | None, text: str) -> Any:
    """`path`: below this one, if it leads here."""
    if spec.kind == "array":
        if path is None:
            return []
        element = spec.element
        one = _value(element, None, text) if isinstance(element, Spec) else with_many(element, path, text)
        return [one] * (1 if path else COUNT)
    if spec.kind == "struct":
        return with_many(spec.element, (), text)
    return text if spec.kind == "string" else b"" if spec.kind == "bytes" else BIG.get(spec.kind, True)


def taken_bytes(decode: Callable[[], Any]) -> int:
    decode()  # what is compiled at first use is not counted
    tracemalloc.start()
    try:
        kept = decode()
        taken, _ = tracemalloc.get_traced_memory()
        assert kept is not None
        return taken
    finally:
        tracemalloc.stop()


DECLARED = [api.spec for api in API_BY_KEY.values() if isinstance(api.spec, ApiSpec)]


@pytest.mark.parametrize("spec", DECLARED, ids=[spec.name for spec in DECLARED])
def test_an_element_takes_no_more_than_it_is_counted_for(spec: ApiSpec[Any, Any]) -> None:
    for version in {spec.version_min, spec.version_max, min(spec.flexible_since, spec.version_max)}:
        for path in arrays(spec.request, version):
            for text in ("", "ab"):
                body = bytes(spec.encode_request(with_many(spec.request, path, text), version))
                taken = taken_bytes(lambda body=body, version=version: spec.decode_request(body, version))
                counted = SLOT_BYTES + schema.held_bytes(element_at(spec.request, path), version)
                assert taken / COUNT < counted + 1, f"v{version} {'.'.join(path)} {text!r}"


FETCH = [
    FetchPartition("topic", (1 << 30) + n, (1 << 62) + n, 1 << 30, 1 << 29, 1 << 61, 1 << 28) for n in range(COUNT)
]
PRODUCE = [ProducePartition("topic", (1 << 30) + number, b"") for number in range(COUNT)]


def wanted(partitions: list[FetchPartition], **more: Any) -> FetchRequest:
    return FetchRequest(0, 1, 1, 0, 0, 0, partitions, **more)


def test_partitions_of_a_fetch_and_of_a_produce_take_no_more_than_they_are_counted_for() -> None:
    body = bytes(fetch.encode_request(wanted(FETCH), 12))
    assert taken_bytes(lambda: fetch.decode_request(body, 12)) / COUNT < fetch._WANTED_BYTES
    forgets = bytes(fetch.encode_request(wanted([], forgotten=[("topic", [1 << 30])] * COUNT), 12))
    assert taken_bytes(lambda: fetch.decode_request(forgets, 12)) / COUNT < fetch._FORGOTTEN_BYTES + 52
    sent = b"".join(bytes(part) for part in produce.encode_request(ProduceRequest(None, 1, 1, PRODUCE), 9))
    assert taken_bytes(lambda: produce.decode_request(sent, 9)) / COUNT < produce._PARTITION_BYTES


def _partitions(count: int) -> Callable[[], Any]:
    inner = [CreatePartitionsAssignment([])] * count
    topics = [CreatePartitionsTopic("topic", 1, inner) for _ in range(10)]
    body = create_partitions.SPEC.encode_request(CreatePartitionsRequest(topics), 2)
    return lambda: create_partitions.SPEC.decode_request(body, 2)


def _names(count: int, name: str = "longer name") -> Callable[[], Any]:
    body = delete_topics.SPEC.encode_request(DeleteTopicsRequest(topic_names=[name] * count), 5)
    return lambda: delete_topics.SPEC.decode_request(body, 5)


def _behind_null_arrays(count: int) -> Callable[[], Any]:
    nulls = [OffsetFetchRequestGroup("group", topics=None)] * 8_000
    last = OffsetFetchRequestGroup("group", topics=[OffsetFetchRequestTopic("topic")] * count)
    body = offset_fetch.SPEC.encode_request(OffsetFetchRequest(groups=[*nulls, last]), 8)
    return lambda: offset_fetch.SPEC.decode_request(body, 8)


def _fetched(count: int) -> Callable[[], Any]:
    body = fetch.encode_request(wanted([FetchPartition("topic", n, 0, 1) for n in range(count)]), 12)
    return lambda: fetch.decode_request(body, 12)


def _fetched_of_many_topics(count: int) -> Callable[[], Any]:
    body = fetch.encode_request(wanted([FetchPartition(f"topic{n}", n, 0, 1) for n in range(count)]), 12)
    return lambda: fetch.decode_request(body, 12)


def _forgotten(count: int) -> Callable[[], Any]:
    body = fetch.encode_request(wanted([], forgotten=[("topic", [1])] * count), 12)
    return lambda: fetch.decode_request(body, 12)


def _forgotten_of_one_topic(count: int) -> Callable[[], Any]:
    body = fetch.encode_request(wanted([], forgotten=[("topic", [1] * count)]), 12)
    return lambda: fetch.decode_request(body, 12)


def _produced(count: int) -> Callable[[], Any]:
    parts = produce.encode_request(ProduceRequest(None, 1, 1, [ProducePartition("t", 1, b"0123456789")] * count), 9)
    body = b"".join(bytes(part) for part in parts)
    return lambda: produce.decode_request(body, 9)


@pytest.mark.parametrize(
    ("request_of", "few", "many"),
    [
        pytest.param(_names, 15_000, 17_500, id="a flat array"),
        pytest.param(_partitions, 1_700, 3_500, id="several arrays in the elements of another, together"),
        pytest.param(_behind_null_arrays, 4_000, 10_000, id="behind arrays that are null, which give nothing back"),
        pytest.param(_fetched, 8_000, 13_000, id="partitions of a fetch"),
        pytest.param(_fetched_of_many_topics, 7_000, 13_000, id="partitions of a fetch, each of another topic"),
        pytest.param(_forgotten, 12_000, 18_000, id="topics that a fetch forgets"),
        pytest.param(_forgotten_of_one_topic, 70_000, 90_000, id="partitions that a fetch forgets"),
        pytest.param(_produced, 10_000, 14_000, id="partitions of a produce"),
    ],
)
def test_more_than_the_bound_is_refused(
    monkeypatch: pytest.MonkeyPatch, request_of: Callable[[int], Callable[[], Any]], few: int, many: int
) -> None:
    monkeypatch.setattr(allowance, "DECODED_BYTES_MAX", 4 << 20)
    assert request_of(few)() is not None
    with pytest.raises(MalformedFrame, match=REFUSED):
        request_of(many)()


def test_what_is_small_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "DECODED_BYTES_MAX", 0)
    assert _names((UNCOUNTED_BYTES_MAX - 100) // 4, "abc")() is not None
    with pytest.raises(MalformedFrame, match=REFUSED):
        _names(UNCOUNTED_BYTES_MAX // 4, "abc")()


HONEST = [
    pytest.param(metadata.SPEC, ("topics",), 1_000_000, id="a million names in Metadata"),
    pytest.param(offset_commit.SPEC, ("topics", "partitions"), 500_000, id="half a million commits"),
    pytest.param(offset_fetch.SPEC, ("topics", "partition_indexes"), 1_000_000, id="a million committed offsets"),
]


@pytest.mark.parametrize(("spec", "path", "count"), HONEST)
def test_the_bound_is_above_what_honest_clients_ask_for(spec: ApiSpec[Any, Any], path: Path, count: int) -> None:
    element = element_at(spec.request, path)
    for version in range(spec.version_min, spec.version_max + 1):
        each = max(ELEMENT_BYTES_MIN, SLOT_BYTES + schema.held_bytes(element, version))
        assert count * each < DECODED_BYTES_MAX
    assert 500_000 * fetch._WANTED_BYTES < DECODED_BYTES_MAX
