"""Messages from declarations: each field once, with the versions that carry it.

    @message
    class Topic:
        name: str = string()
        topic_id: UUID = uuid(since=10)

`decode` and `encode` are compiled per class and version at first use, into the straight-line
Python one would write by hand. A field that a version does not carry keeps its default when it
is decoded and is left out when it is encoded.

A message is what a dataclass with slots is, only that its `__init__`, too, is compiled at first use:
making 150 dataclasses took a third of the broker's start.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from pylog.broker_lite.protocol import allowance as memory
from pylog.broker_lite.protocol import wire
from pylog.broker_lite.protocol.allowance import Allowance
from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame

T = TypeVar("T")
_FOREVER = 1 << 15
_OF_ANY_CLASS = ("__dict__", "__weakref__")  # that has no slots
_A_NEW_LIST = object()
ANY_SIZE = 1 << 62
_ELEMENT_BYTES = 16  # of an array, or the time that it takes to encode as many: about


class LargeMessage(Exception):
    """It takes long to encode: whoever must not wait lets a thread do it."""


@dataclass(frozen=True, slots=True)
class Spec:
    """How one field looks on the wire, and in which versions."""

    kind: str
    since: int
    until: int
    null_since: int | None  # the first version that lets null pass; None: never
    tag: int | None
    element: Any = None  # of an array: a message class, or the Spec of a primitive; of a struct its message class
    default: Any = None

    def carried_by(self, version: int) -> bool:
        return self.since <= version <= self.until


def _field(
    kind: str,
    default: Any,
    *,
    since: int = 0,
    until: int = _FOREVER,
    null_since: int | None = None,
    tag: int | None = None,
    element: Any = None,
) -> Any:
    return Spec(kind, since, until, null_since, tag, element, default)


def int8(default: int = 0, **versions: Any) -> Any:
    return _field("I8", default, **versions)


def int16(default: int = 0, **versions: Any) -> Any:
    return _field("I16", default, **versions)


def int32(default: int = 0, **versions: Any) -> Any:
    return _field("I32", default, **versions)


def int64(default: int = 0, **versions: Any) -> Any:
    return _field("I64", default, **versions)


def float64(default: float = 0.0, **versions: Any) -> Any:
    return _field("F64", default, **versions)


def boolean(default: bool = False, **versions: Any) -> Any:
    return _field("bool", default, **versions)


def string(default: str | None = "", **versions: Any) -> Any:
    """A default of None lets null pass, as does `null_since`; otherwise null is a malformed frame."""
    return _field("string", default, **{"null_since": 0 if default is None else None, **versions})


def data(default: bytes | None = b"", **versions: Any) -> Any:
    """Decoded it is a copy: a declared message may outlive its frame."""
    return _field("bytes", default, **{"null_since": 0 if default is None else None, **versions})


def uuid(**versions: Any) -> Any:
    return _field("uuid", wire.ZERO_UUID, **versions)


def array(element: Any, default: list[Any] | None = [], **versions: Any) -> Any:  # noqa: B006 (a marker, never kept)
    """Of messages (`array(Topic)`) or of primitives (`array(int32)`)."""
    inner = element if isinstance(element, type) else element()
    return _field("array", default, **{"null_since": 0 if default is None else None, **versions}, element=inner)


def struct_or_null(element: type[Any], **versions: Any) -> Any:
    return _field("struct", None, **{"null_since": 0, **versions}, element=element)


class Message:
    """What all messages are."""

    __slots__ = ()
    specs: ClassVar[Mapping[str, Spec]]  # of its fields, in their order

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]
        cls.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.specs)

    __hash__ = None  # type: ignore[assignment] # it may change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.specs)})"


@dataclass_transform()  # without specifiers: a type checker then knows that every field has a default
def message(cls: type[T]) -> type[T]:
    specs = {name: cls.__dict__[name] for name in cls.__annotations__}
    own = {name: value for name, value in cls.__dict__.items() if name not in specs and name not in _OF_ANY_CLASS}
    made: Any = type(cls.__name__, (Message,), {**own, "__slots__": tuple(specs), "specs": specs})
    return cast(type[T], made)


def _initializer(cls: type[Message]) -> Callable[..., None]:
    names = cls.specs
    source = _Source(", ".join(["self", *(f"{name}=d_{name}" for name in names)]))
    for name, spec in names.items():
        if spec.kind == "array" and spec.default is not None:
            source.names[f"d_{name}"] = _A_NEW_LIST
            source.names["new"] = _A_NEW_LIST
            source.add(f"self.{name} = [] if {name} is new else {name}")
        else:
            source.names[f"d_{name}"] = spec.default
            source.add(f"self.{name} = {name}")
    return source.compile(f"{cls.__name__}.__init__")


def decode(
    cls: type[T],
    buffer: Buffer,
    version: int,
    *,
    flexible: bool,
    position: int = 0,
    allowance: Allowance | None = None,
) -> tuple[T, int]:
    """(message, position behind it); MalformedFrame when the bytes are not that message, or it has too much in it."""
    hashable: Any = cls  # which mypy does not believe of a class
    try:
        decoded: tuple[T, int] = _decoder(hashable, version, flexible)(buffer, position, allowance)
        return decoded
    except struct.error:
        raise MalformedFrame(f"{cls.__name__} v{version} does not end in its frame") from None


def decode_whole(cls: type[T], buffer: Buffer, version: int, *, flexible: bool, position: int = 0) -> T:
    """The message that fills `buffer` from `position` to its end."""
    decoded, end = decode(cls, buffer, version, flexible=flexible, position=position)
    if end != len(buffer):
        raise MalformedFrame(f"{len(buffer) - end} bytes stand behind {cls.__name__} v{version}")
    return decoded


def encode(value: Any, out: bytearray, version: int, *, flexible: bool, bytes_max: int = ANY_SIZE) -> None:
    """LargeMessage, with some of it in `out`, as soon as it is seen to have more than about `bytes_max`."""
    cls: Any = type(value)
    _encoder(cls, version, flexible)(value, out, bytes_max)


class _Source:
    """Lines of a function and the names they use."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def function({signature}):"]
        self.names: dict[str, Any] = {"wire": wire, "MalformedFrame": MalformedFrame, "LargeMessage": LargeMessage}

    def add(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    def compile(self, title: str) -> Callable[..., Any]:
        scope = dict(self.names)
        exec(compile("\n".join(self.lines), f"<{title}>", "exec"), scope)
        function: Callable[..., Any] = scope["function"]
        return function


_FIXED_BYTES = {"I8": 1, "I16": 2, "I32": 4, "I64": 8, "F64": 8}
_HELD_BYTES = {  # by what is made of them
    "bool": 0,
    "I64": memory.INT64_BYTES,
    "string": memory.TEXT_BYTES,
    "bytes": memory.DATA_BYTES,
    "uuid": memory.UUID_BYTES,
    "array": memory.LIST_BYTES,
}


def held_bytes(element: Any, version: int) -> int:
    """About what an element of an array takes in memory, save for those of its own arrays."""
    if isinstance(element, Spec):
        return _HELD_BYTES.get(element.kind, memory.INT32_BYTES)
    held = memory.object_bytes(len(element.specs))
    for spec in element.specs.values():
        if spec.kind == "struct" and spec.carried_by(version):
            held += held_bytes(spec.element, version)
        elif spec.kind == "array" or spec.carried_by(version):  # a list is made anyway
            held += held_bytes(spec, version)
    return held


@cache
def _decoder(cls: Any, version: int, flexible: bool) -> Callable[[Buffer, int, Allowance | None], tuple[Any, int]]:
    source = _Source("b, p, allowance")
    source.names["cls"] = cls
    carried = [(name, spec) for name, spec in cls.specs.items() if spec.carried_by(version)]
    tagged = [(name, spec) for name, spec in carried if spec.tag is not None]
    for name, spec in carried:
        if spec.tag is None:
            _add_read(source, f"v_{name}", spec, version, flexible, 1)
    if flexible and not tagged:
        source.add("p = wire.skip_tags(b, p)")
    elif flexible:
        for name, spec in tagged:
            source.names[f"d_{name}"] = spec.default
            source.add(f"v_{name} = " + ("[]" if spec.kind == "array" and spec.default is not None else f"d_{name}"))
        source.add("tags, p = wire.read_uvarint(b, p)")
        source.add("for _ in range(tags):")
        source.add("tag, p = wire.read_uvarint(b, p)", 2)
        source.add("size, p = wire.read_uvarint(b, p)", 2)
        source.add("end = p + size", 2)
        source.add("if end > len(b): raise MalformedFrame('a tagged field does not end in its frame')", 2)
        for name, spec in tagged:
            source.add(f"if tag == {spec.tag}:", 2)
            _add_read(source, f"v_{name}", spec, version, flexible, 3)
            source.add(f"if p != end: raise MalformedFrame('the tagged field {name} does not fill its size')", 3)
        source.add("p = end", 2)
    names = [name for name, spec in carried if spec.tag is None or flexible]
    source.add(f"return cls({', '.join(f'{name}=v_{name}' for name in names)}), p")
    return source.compile(f"decode {cls.__name__} v{version}")


def _add_read(source: _Source, target: str, spec: Spec, version: int, flexible: bool, depth: int) -> None:
    compact = "compact_" if flexible else ""
    if spec.kind in _FIXED_BYTES:
        source.add(f"{target}, = wire.{spec.kind}.unpack_from(b, p)", depth)
        source.add(f"p += {_FIXED_BYTES[spec.kind]}", depth)
    elif spec.kind == "bool":
        source.add(f"{target} = wire.I8.unpack_from(b, p)[0] != 0", depth)
        source.add("p += 1", depth)
    elif spec.kind == "uuid":
        source.add(f"{target}, p = wire.read_uuid(b, p)", depth)
    elif spec.kind == "struct":
        reader = f"read_{spec.element.__name__}"
        source.names[reader] = _decoder(spec.element, version, flexible)
        source.add(f"{target} = None", depth)
        source.add("p += 1", depth)
        source.add("if wire.I8.unpack_from(b, p - 1)[0] >= 0:", depth)
        source.add(f"{target}, p = {reader}(b, p, allowance)", depth + 1)
    elif spec.kind == "array":
        source.add(f"n, p = wire.read_{compact}count(b, p)", depth)
        each_bytes = max(memory.ELEMENT_BYTES_MIN, memory.SLOT_BYTES + held_bytes(spec.element, version))
        source.add(f"if allowance is not None and n > 0: allowance.take(n, {each_bytes})", depth)
        source.add(f"{target} = None if n < 0 else []", depth)
        _add_null_check(source, target, spec, version, depth)
        source.add("for _ in range(n):", depth)
        if isinstance(spec.element, Spec):
            _add_read(source, "item", spec.element, version, flexible, depth + 1)
        else:
            reader = f"read_{spec.element.__name__}"
            source.names[reader] = _decoder(spec.element, version, flexible)
            source.add(f"item, p = {reader}(b, p, allowance)", depth + 1)
        source.add(f"{target}.append(item)", depth + 1)
    else:
        source.add(f"{target}, p = wire.read_{compact}{spec.kind}(b, p)", depth)
        _add_null_check(source, target, spec, version, depth)
        if spec.kind == "bytes":
            source.add(f"if {target} is not None: {target} = bytes({target})", depth)


def _add_null_check(source: _Source, target: str, spec: Spec, version: int, depth: int) -> None:
    if spec.null_since is None or version < spec.null_since:
        source.add(f"if {target} is None: raise MalformedFrame('{target[2:]} is null')", depth)


@cache
def _encoder(cls: Any, version: int, flexible: bool) -> Callable[[Any, bytearray, int], None]:
    source = _Source("m, out, bytes_max")
    carried = [(name, spec) for name, spec in cls.specs.items() if spec.carried_by(version)]
    for name, spec in carried:
        if spec.tag is None:
            _add_write(source, f"m.{name}", spec, version, flexible, 1)
    if flexible:
        tagged = sorted((spec.tag, name, spec) for name, spec in carried if spec.tag is not None)
        if not tagged:
            source.add("out.append(0)")
        else:  # a tagged field at its default is left out
            source.add("tags = []")
            for tag, name, spec in tagged:
                source.names[f"d_{name}"] = spec.default
                source.add(f"if m.{name} != d_{name}:")
                source.add("outer, out = out, bytearray()", 2)
                _add_write(source, f"m.{name}", spec, version, flexible, 2)
                source.add(f"tags.append(({tag}, out)); out = outer", 2)
            source.add("wire.write_uvarint(out, len(tags))")
            source.add("for tag, body in tags:")
            source.add("wire.write_uvarint(out, tag)", 2)
            source.add("wire.write_compact_count(out, len(body) - 1)", 2)
            source.add("out += body", 2)
    source.add("return None")
    return source.compile(f"encode {cls.__name__} v{version}")


def _add_write(source: _Source, value: str, spec: Spec, version: int, flexible: bool, depth: int) -> None:
    compact = "compact_" if flexible else ""
    if spec.kind in _FIXED_BYTES:
        source.add(f"out += wire.{spec.kind}.pack({value})", depth)
    elif spec.kind == "bool":
        source.add(f"out.append(1 if {value} else 0)", depth)
    elif spec.kind == "uuid":
        source.add(f"out += {value}.bytes", depth)
    elif spec.kind == "struct":
        writer = f"write_{spec.element.__name__}"
        source.names[writer] = _encoder(spec.element, version, flexible)
        source.add(f"out += wire.I8.pack(-1 if {value} is None else 1)", depth)
        source.add(f"if {value} is not None: {writer}({value}, out, bytes_max)", depth)
    elif spec.kind == "array":
        source.add(f"items = {value}", depth)
        source.add("n = -1 if items is None else len(items)", depth)
        source.add(f"if len(out) + n * {_ELEMENT_BYTES} > bytes_max: raise LargeMessage", depth)
        source.add(f"wire.write_{compact}count(out, n)", depth)
        source.add("for item in items or ():", depth)
        if isinstance(spec.element, Spec):
            _add_write(source, "item", spec.element, version, flexible, depth + 1)
        else:
            writer = f"write_{spec.element.__name__}"
            source.names[writer] = _encoder(spec.element, version, flexible)
            source.add(f"{writer}(item, out, bytes_max)", depth + 1)
    else:
        source.add(f"wire.write_{compact}{spec.kind}(out, {value})", depth)
