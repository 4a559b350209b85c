"""The twins of kernels that have none elsewhere: plain, slow and obviously right. Needs nothing but Python."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """As Kafka's clients hash keys: 32 bits, unsigned."""
    hashed = _SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if tail := data[whole:]:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def siphash(secret: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with 16 bytes of result."""
    mask = (1 << 64) - 1
    low, high = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    v0, v1 = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = low ^ 0x6C7967656E657261, high ^ 0x7465646279746573

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    def mix(rounds: int) -> int:
        nonlocal v0, v1, v2, v3
        for _ in range(rounds):
            v0, v2 = (v0 + v1) & mask, (v2 + v3) & mask
            v1, v3 = rotated(v1, 13) ^ v0, rotated(v3, 16) ^ v2
            v0 = rotated(v0, 32)
            v2, v0 = (v2 + v1) & mask, (v0 + v3) & mask
            v1, v3 = rotated(v1, 17) ^ v2, rotated(v3, 21) ^ v0
            v2 = rotated(v2, 32)
        return v0 ^ v1 ^ v2 ^ v3

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v3 ^= word
        mix(2)
        v0 ^= word
    v2 ^= 0xEE
    first = mix(4)
    v1 ^= 0xDD
    return first.to_bytes(8, "little") + mix(4).to_bytes(8, "little")
