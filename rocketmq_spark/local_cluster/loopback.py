"""Confines RocketMQ to the loopback where it has no setting for that.

The replication port of every version, and all ports of 4.9, are opened with
`new InetSocketAddress(port)`: on every network interface, and the replication port hands out the
whole commit log without asking who reads it. Here those few classes get a copy in which that one
expression makes a subclass whose constructor says 127.0.0.1 first. The copies go into a jar that
stands first on the class path; the published jars stay as they are.

Only two numbers of a class file change: the operand of `new` and the class of the constructor
that is called. Everything else keeps its place. (Java Virtual Machine Specification, chapter 4.)
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from rocketmq_spark.errors import ClusterError

_ADDRESS = "java/net/InetSocketAddress"
_CONFINED = "rocketmq_spark/LoopbackAddress"

# (jar, class). The first pair is of 5.x, the others of 4.9; one that is absent needs no confining.
_LISTENERS = (
    ("rocketmq-store", "org/apache/rocketmq/store/ha/DefaultHAService$AcceptSocketService"),
    ("rocketmq-store", "org/apache/rocketmq/store/ha/HAService$AcceptSocketService"),
    ("rocketmq-remoting", "org/apache/rocketmq/remoting/netty/NettyRemotingServer"),
)

# Constant pool tags and the size of what follows them; Utf8 (1) has its own length.
_UTF8, _CLASS, _METHODREF, _NAME_AND_TYPE = 1, 7, 10, 12
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4}
_SIZES |= {15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_LONG, _DOUBLE = 5, 6  # take two places in the pool

_NEW, _DUP = 0xBB, 0x59


def write_jar(jars: Path, version: str, target: Path) -> None:
    """Write the jar of confined classes for the version whose jars are in the folder `jars`."""
    confined: dict[str, bytes] = {_CONFINED: _loopback_address()}
    for jar, name in _LISTENERS:
        with zipfile.ZipFile(jars / f"{jar}-{version}.jar") as archive:
            if f"{name}.class" not in archive.namelist():
                continue
            changed = confine(archive.read(f"{name}.class"))
        if changed is not None:
            confined[name] = changed
    if not any("HAService" in name for name in confined):
        raise ClusterError(
            f"RocketMQ {version} opens its replication port in a way this package does not know, "
            "so it cannot be kept on the loopback: use version='5.5.0' or '4.9.7'."
        )
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in confined.items():
            archive.writestr(f"{name}.class", content)


def confine(content: bytes) -> bytes | None:
    """The class with `new InetSocketAddress(port)` confined; None where there is no such call."""
    pool, end = _constant_pool(content)
    texts = {
        i: body[2:].decode("utf-8", "replace") for i, (t, _, body) in pool.items() if t == _UTF8
    }

    def pair(index: int) -> tuple[int, int]:
        first, second = struct.unpack(">HH", pool[index][2])
        return first, second

    classes = {
        i
        for i, (t, _, body) in pool.items()
        if t == _CLASS and texts[struct.unpack(">H", body)[0]] == _ADDRESS
    }
    calls = []
    for index, (tag, at, _) in pool.items():
        if tag == _METHODREF and pair(index)[0] in classes:
            name, kind = pair(pair(index)[1])
            if (texts[name], texts[kind]) == ("<init>", "(I)V"):
                calls.append(at)
    if not calls:
        return None
    count = struct.unpack(">H", content[8:10])[0]
    new_class = count + 1
    out = bytearray(content)
    for at in calls:
        struct.pack_into(">H", out, at + 1, new_class)
    news = [struct.pack(">BHB", _NEW, i, _DUP) for i in classes]
    places = [out.find(code, end) for code in news if out.count(code, end) == 1]
    if len(places) != 1 or len(calls) != 1:
        return None
    struct.pack_into(">H", out, places[0] + 1, new_class)
    struct.pack_into(">H", out, 8, count + 2)
    out[end:end] = _utf8(_CONFINED) + struct.pack(">BH", _CLASS, count)
    return bytes(out)


def _constant_pool(content: bytes) -> tuple[dict[int, tuple[int, int, bytes]], int]:
    """Index -> (tag, place, what follows the tag), and where the pool ends."""
    pool: dict[int, tuple[int, int, bytes]] = {}
    at, index = 10, 1
    count = struct.unpack(">H", content[8:10])[0]
    while index < count:
        tag = content[at]
        size = _SIZES[tag] if tag != _UTF8 else 2 + struct.unpack(">H", content[at + 1 : at + 3])[0]
        pool[index] = (tag, at, content[at + 1 : at + 1 + size])
        at += 1 + size
        index += 2 if tag in (_LONG, _DOUBLE) else 1
    return pool, at


def _utf8(text: str) -> bytes:
    return struct.pack(">BH", _UTF8, len(text)) + text.encode()


def _loopback_address() -> bytes:
    """class LoopbackAddress extends InetSocketAddress { (int p) { super("127.0.0.1", p); } }"""
    pool = [
        _utf8(_CONFINED),  # 1
        struct.pack(">BH", _CLASS, 1),  # 2
        _utf8(_ADDRESS),  # 3
        struct.pack(">BH", _CLASS, 3),  # 4
        _utf8("<init>"),  # 5
        _utf8("(I)V"),  # 6
        _utf8("(Ljava/lang/String;I)V"),  # 7
        struct.pack(">BHH", _NAME_AND_TYPE, 5, 7),  # 8
        struct.pack(">BHH", _METHODREF, 4, 8),  # 9
        _utf8("127.0.0.1"),  # 10
        struct.pack(">BH", 8, 10),  # 11: String
        _utf8("Code"),  # 12
    ]
    # aload_0, ldc 11, iload_1, invokespecial 9, return
    code = bytes([0x2A, 0x12, 11, 0x1B, 0xB7, 0, 9, 0xB1])
    attribute = struct.pack(">HHI", 3, 2, len(code)) + code + struct.pack(">HH", 0, 0)
    method = struct.pack(">HHHH", 1, 5, 6, 1) + struct.pack(">HI", 12, len(attribute)) + attribute
    # Java 8's format; public super; no interfaces, no fields, one method, no attributes.
    return (
        struct.pack(">IHHH", 0xCAFEBABE, 0, 52, len(pool) + 1)
        + b"".join(pool)
        + struct.pack(">HHHHHH", 0x21, 2, 4, 0, 0, 1)
        + method
        + struct.pack(">H", 0)
    )
