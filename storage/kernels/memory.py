"""Raw memory for kernels: loads, stores and copies at addresses. Nothing here checks bounds; callers do, always before.

Addresses rather than arrays, because one kernel call reads many buffers (a fetch, and one per compressed batch)
and numba would compile once more for every mix of read-only and writable arrays.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending
from numba.core import cgutils

from pylog.storage.kernels.cache import types

intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic
raw_memcpy: Any = cgutils.raw_memcpy
get_or_insert_function: Any = cgutils.get_or_insert_function
_BYTE = ir.IntType(8)


@intrinsic
def load_u8(typing_context: Any, address: Any) -> Any:
    """The byte at `address`, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load_u32(typing_context: Any, address: Any) -> Any:
    """Four bytes at `address` in the machine's order (little-endian wherever numba runs), aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()), align=1)

    return types.uint32(types.int64), generate


@intrinsic
def load_i64(typing_context: Any, address: Any) -> Any:
    """Eight bytes at `address` in the machine's order, aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), align=1)

    return types.int64(types.int64), generate


@intrinsic
def load_big_endian(typing_context: Any, address: Any, size: Any) -> Any:
    """A signed big-endian number of `size` bytes (a literal: 2, 4 or 8), as int64."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    width = ir.IntType(8 * size.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        swapped = builder.bswap(builder.load(builder.inttoptr(arguments[0], width.as_pointer()), align=1))
        return builder.sext(swapped, ir.IntType(64)) if width.width < 64 else swapped

    return types.int64(types.int64, size), generate


@intrinsic
def store_u8(typing_context: Any, address: Any, value: Any) -> Any:
    """The low byte of `value`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        builder.store(builder.trunc(arguments[1], _BYTE), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def store_big_endian(typing_context: Any, address: Any, value: Any, size: Any) -> Any:
    """`value` as a big-endian number of `size` bytes (a literal: 2, 4 or 8)."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    width = ir.IntType(8 * size.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        narrow = builder.trunc(arguments[1], width) if width.width < 64 else arguments[1]
        builder.store(builder.bswap(narrow), builder.inttoptr(arguments[0], width.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, size), generate


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """memcpy: a byte loop, even vectorised, is several times slower from some hundred bytes up."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, count = arguments
        raw_memcpy(
            builder,
            builder.inttoptr(target, _BYTE.as_pointer()),
            builder.inttoptr(source, _BYTE.as_pointer()),
            count,
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at `address`; nothing waits for it, and no address is wrong."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        function_type = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), word, word, word])
        function = get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        builder.call(function, [pointer, word(0), word(3), word(1)])  # to read, into every cache, data
        return context.get_dummy_value()

    return types.void(types.int64), generate
