"""Bodies: Java's own bytes, frames of every shape, and everything that is not one."""

from __future__ import annotations

import base64
import zlib
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.errors import BodyError, UsageError
from rocketmq_spark.wire.compression import COMPRESSED, SYS_FLAGS, compress, decompress

ZLIB, LZ4, ZSTD = (COMPRESSED | SYS_FLAGS[kind] for kind in ("zlib", "lz4", "zstd"))


@pytest.mark.parametrize(
    ("sys_flag", "stored"),
    [
        (COMPRESSED, "eF5LTKQMAAAUjRhB"),
        (ZLIB, "eF5LTKQMAAAUjRhB"),
        (LZ4, "BCJNGGBwcwsAAAAfYQEAJ1BhYWFhYQAAAAA="),
        (ZSTD, "KLUv/QBYRAAAEGFhAQCTABYBAAA="),
    ],
)
def test_what_java_compressed(sys_flag: int, stored: str) -> None:
    assert decompress(sys_flag, base64.b64decode(stored)) == b"a" * 64


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.sampled_from(sorted(SYS_FLAGS)), st.binary(max_size=2000), st.integers(1, 9))
def test_there_and_back(kind: str, body: bytes, level: int) -> None:
    stored = compress(kind, body, level)
    assert decompress(COMPRESSED | SYS_FLAGS[kind], memoryview(stored)) == body


@pytest.mark.parametrize("kind", ["lz4", "zstd"])
def test_frames_without_content_size_and_of_many_blocks(kind: str) -> None:
    body = bytes(range(256)) * 40_000  # 10 MB: three blocks of lz4's largest size
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        for start in range(0, len(body), 1_000_000):
            stream.write(body[start : start + 1_000_000])
    assert decompress(COMPRESSED | SYS_FLAGS[kind], sink.getvalue().to_pybytes()) == body


def test_deflate_without_the_zlib_header() -> None:
    packer = zlib.compressobj(wbits=-15)
    stored = packer.compress(b"hello" * 20) + packer.flush()
    assert stored[0] & 0xF != 8
    assert decompress(COMPRESSED, stored) == b"hello" * 20


def test_uncompressed_and_empty_bodies_pass() -> None:
    assert decompress(0, b"hello") == b"hello"
    assert decompress(0x700, b"hello") == b"hello"  # a type without the bit says nothing
    assert decompress(LZ4, b"") == b""


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
@pytest.mark.parametrize("kept", [1, 5, -1])
def test_truncated_bodies_name_their_place(sys_flag: int, kept: int) -> None:
    kind = {bits: kind for kind, bits in SYS_FLAGS.items()}[sys_flag & ~COMPRESSED]
    stored = compress(kind, bytes(range(256)) * 4)
    with pytest.raises(BodyError, match=r"T/b-a/0, queue offset 7: the .* body of .* decompress"):
        decompress(sys_flag, stored[:kept], "T/b-a/0, queue offset 7")


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.sampled_from([ZLIB, LZ4, ZSTD]), st.binary(min_size=1, max_size=60))
def test_garbage_raises_nothing_but_our_error(sys_flag: int, stored: bytes) -> None:
    with suppress(BodyError):
        decompress(sys_flag, stored)


def test_unknown_types() -> None:
    with pytest.raises(BodyError, match="queue: compression type 5"):
        decompress(COMPRESSED | 0x500, b"x", "queue")
    with pytest.raises(UsageError, match="'snappy': one of lz4, zlib, zstd"):
        compress("snappy", b"x")


@pytest.mark.parametrize("kind", sorted(SYS_FLAGS))
def test_a_body_may_be_as_long_as_the_limit_and_no_longer(kind: str) -> None:
    sys_flag = COMPRESSED | SYS_FLAGS[kind]
    stored = compress(kind, bytes(1 << 20))
    assert len(decompress(sys_flag, stored, limit=1 << 20)) == 1 << 20
    with pytest.raises(BodyError, match="grows beyond 1048575 bytes"):
        decompress(sys_flag, stored, limit=(1 << 20) - 1)
