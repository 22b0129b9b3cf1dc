"""Message bodies, compressed and back: zlib, lz4 frames and zstd frames.

zlib is in the standard library; lz4 and zstd are pyarrow's, which every executor has, and are
loaded only when a message needs them. Everything is read as a stream, for two reasons: Java's
zstd frames do not say how long their content is, and a stream can be stopped when a few stored
bytes would unfold into more than memory holds.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from rocketmq_spark.errors import BodyError, UsageError

# Bits of MessageSysFlag and numbers of CompressionType. 0 is what producers before 5.0 wrote.
COMPRESSED = 0x1
COMPRESSION_MASK = 0x700
ZLIB, LZ4, ZSTD = "zlib", "lz4", "zstd"
SYS_FLAGS = {LZ4: 0x100, ZSTD: 0x200, ZLIB: 0x300}
_KINDS = {0: ZLIB, **{bits: kind for kind, bits in SYS_FLAGS.items()}}

# The start of every lz4 frame that Java writes: independent blocks of up to 4 MiB. pyarrow's own
# frames link their blocks, and Java's reader takes none of those.
_LZ4_START = bytes.fromhex("04224d18607073")
_LZ4_BLOCK = 4 << 20
_LZ4_STORED = 1 << 31  # in a block's length: not compressed

# Brokers store at most 4 MiB by default and can be set to more; no honest body comes near this.
MAX_BODY = 512 << 20


def compress(kind: str, data: bytes, level: int = 5) -> bytes:
    """`data` as a body of this kind; `level` is Java's `compressLevel`, without meaning to lz4."""
    if kind == ZLIB:
        return zlib.compress(data, level)
    if kind not in SYS_FLAGS:
        raise UsageError(f"unknown compression {kind!r}: one of {', '.join(sorted(SYS_FLAGS))}")
    import pyarrow as pa

    if kind == LZ4:
        return _lz4_frame(pa.Codec("lz4_raw"), data)
    packed: bytes = pa.Codec(kind, compression_level=level).compress(data, asbytes=True)
    return packed


def _lz4_frame(codec: Any, data: bytes) -> bytes:
    parts = [_LZ4_START]
    for start in range(0, len(data), _LZ4_BLOCK):
        block = data[start : start + _LZ4_BLOCK]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += (struct.pack("<I", len(packed)), packed)
        else:
            parts += (struct.pack("<I", len(block) | _LZ4_STORED), block)
    return b"".join([*parts, bytes(4)])


def decompress(
    sys_flag: int, data: bytes | memoryview, where: str = "", limit: int = MAX_BODY
) -> bytes:
    """The body a producer gave, from the bytes stored under this SYSFLAG.

    A body without the compression bit, or without a single byte, is returned as it is.
    """
    if not sys_flag & COMPRESSED or not data:
        return bytes(data)
    kind = _KINDS.get(sys_flag & COMPRESSION_MASK)
    if kind is None:
        number = (sys_flag & COMPRESSION_MASK) >> 8
        raise BodyError(_at(where, f"compression type {number} is none that RocketMQ has"))
    try:
        body = _inflate(data, limit) if kind == ZLIB else _read_frames(kind, data, limit)
    except (OSError, EOFError, zlib.error) as problem:
        raise BodyError(
            _at(where, f"the {kind} body of {len(data)} bytes will not decompress: {problem}")
        ) from problem
    if len(body) > limit:
        raise BodyError(
            _at(where, f"the {kind} body of {len(data)} bytes grows beyond {limit} bytes")
        )
    return body


def _at(where: str, problem: str) -> str:
    return f"{where}: {problem}" if where else problem


def _inflate(data: bytes | memoryview, limit: int) -> bytes:
    # An RFC 1950 stream names its method, 8, in the low nibble of the first byte. Some producers
    # that are not Java's write deflate without that header.
    stream = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS)
    body = stream.decompress(data, limit + 1)
    if not stream.eof and len(body) <= limit:
        raise EOFError("it ends too early")
    return body


def _read_frames(kind: str, data: bytes | memoryview, limit: int) -> bytes:
    import pyarrow as pa

    chunks: list[bytes] = []
    size, step = 0, 64 << 10
    with pa.CompressedInputStream(pa.BufferReader(data), kind) as stream:
        while size <= limit:
            chunk = stream.read(min(step, limit + 1 - size))
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
            step *= 2
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
