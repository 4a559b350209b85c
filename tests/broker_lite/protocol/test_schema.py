from uuid import UUID

import pytest

from pylog.broker_lite.protocol import schema
from pylog.broker_lite.protocol.schema import array, boolean, data, float64, int8, int32, message, string, uuid
from pylog.broker_lite.protocol.wire import MalformedFrame


@message
class Inner:
    name: str | None = string(None, since=2)
    level: int = int8(-1)


@message
class Outer:
    blob: bytes | None = data(None)
    ratio: float = float64()
    ids: list[UUID] = array(uuid)
    flags: list[bool] = array(boolean)
    inner: list[Inner] | None = array(Inner, None, until=2)
    only_since_1: int = int32(7, since=1)
    must_be: str = string(null_since=3)
    tagged: list[Inner] = array(Inner, since=2, tag=1)
    tagged_text: str | None = string(None, since=2, tag=0)


FULL = Outer(b"\x01", 0.5, [UUID(int=9)], [True, False], [Inner("n", 3)], 8, "m", [Inner("t", 1)], "tag")
EMPTY = Outer()


@pytest.mark.parametrize("value", [FULL, EMPTY], ids=["full", "empty"])
@pytest.mark.parametrize(("version", "flexible"), [(0, False), (1, False), (2, True), (3, True)])
def test_what_a_version_carries_survives_and_the_rest_keeps_its_default(
    value: Outer, version: int, flexible: bool
) -> None:
    out = bytearray()
    schema.encode(value, out, version, flexible=flexible)
    decoded = schema.decode_whole(Outer, bytes(out), version, flexible=flexible)
    expected = Outer(**{name: getattr(value, name) for name in Outer.specs})
    if version < 2:
        expected.tagged, expected.tagged_text = [], None
        expected.inner = value.inner and [Inner(None, inner.level) for inner in value.inner]
    if version < 1:
        expected.only_since_1 = 7
    if version > 2:
        expected.inner = None
    assert decoded == expected


def test_null_is_refused_before_the_version_that_allows_it() -> None:
    for version, flexible in ((2, True), (3, True)):
        out = bytearray()
        schema.encode(Outer(must_be=None), out, version, flexible=flexible)  # type: ignore[arg-type]
        if version == 3:
            assert schema.decode_whole(Outer, out, version, flexible=True).must_be is None
        else:
            with pytest.raises(MalformedFrame, match="must_be is null"):
                schema.decode_whole(Outer, out, version, flexible=True)


def test_tags_are_written_in_order_and_left_out_at_their_default() -> None:
    out = bytearray()
    schema.encode(Outer(tagged_text="x"), out, 3, flexible=True)
    assert out.endswith(bytes.fromhex("01 00 02 02 78"))
    out = bytearray()
    schema.encode(Outer(tagged_text="x", tagged=[Inner("n", 1)]), out, 3, flexible=True)
    assert out.endswith(bytes.fromhex("02 00 02 02 78 01 05 02 02 6e 01 00"))


def test_a_tagged_field_that_does_not_fill_its_size_is_malformed() -> None:
    out = bytearray()
    schema.encode(Outer(tagged_text="x"), out, 3, flexible=True)
    out[-3:] = bytes.fromhex("03 02 78 00")
    with pytest.raises(MalformedFrame, match="tagged_text"):
        schema.decode_whole(Outer, out, 3, flexible=True)


def test_decoded_bytes_are_a_copy() -> None:
    out = bytearray()
    schema.encode(FULL, out, 0, flexible=False)
    decoded = schema.decode_whole(Outer, memoryview(out), 0, flexible=False)
    out[4] = 0xFF
    assert decoded.blob == b"\x01"
    assert isinstance(decoded.blob, bytes)


def test_messages_do_not_share_their_lists() -> None:
    first, second = Outer(), Outer()
    first.ids.append(UUID(int=1))
    assert second.ids == []


def test_a_message_is_what_a_dataclass_with_slots_is() -> None:
    one, other = Inner("n"), Inner(level=-1, name="n")
    assert one == other
    assert one != Inner("m")
    assert one != ("n", -1)
    assert repr(one) == "Inner(name='n', level=-1)"
    with pytest.raises(TypeError):
        hash(one)
    with pytest.raises(TypeError):
        Inner(nothing=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        one.nothing = 1  # type: ignore[attr-defined]
    assert Outer().ids is not Outer().ids
    assert Outer(inner=None).inner is None
