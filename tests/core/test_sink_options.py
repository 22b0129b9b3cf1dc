"""The sink's options: what is taken, what is refused, and in which words."""

from __future__ import annotations

import pytest

from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.core.sink_options import SinkOptions, read_sink_options
from rocketmq_spark.errors import UsageError

SERVER = {"nameServer": "127.0.0.1:9876"}


def test_defaults_and_values() -> None:
    options = read_sink_options(SERVER)
    assert (options.retries, options.batch, options.client) == (5, 512 << 10, "python")
    given = read_sink_options({**SERVER, "SENDTIMEOUT": "500ms", "compression": "LZ4"})
    assert (given.send_timeout, given.compression) == (0.5, "lz4")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "T"}, "unknown option 'topik': did you mean topic?"),
        ({"timeout": "5s"}, "unknown option 'timeout': did you mean sendTimeout?"),
        ({"client": "java"}, "option client is 'java': write one of python, native"),
        ({"batch": "5m"}, r"batch \(5242880\) is more than maxMessageSize \(4194304\)"),
        ({"accessKey": "a"}, "an account needs accessKey and secretKey: secretKey is missing"),
        ({"nameServer": " "}, "option nameServer is ' ': it is empty"),
        ({"sendTimeout": "0s"}, "sendTimeout must be more than 0"),
        ({"startingOffsets": "earliest"}, "unknown option 'startingOffsets'"),
    ],
)
def test_mistakes(given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_sink_options({**SERVER, **given})


def test_a_name_server_is_needed() -> None:
    with pytest.raises(UsageError, match="nameServer is missing"):
        read_sink_options({"topic": "T"})


def test_secrets_are_not_shown() -> None:
    options = read_sink_options({**SERVER, "accessKey": "me", "secretKey": "hidden"})
    assert "hidden" not in repr(options) and "secretKey=***" in repr(options)


def test_what_both_have_is_the_same() -> None:
    shared = {"name_server", "namespace", "namespace_v2", "access_key", "tls_ca", "tls_verify"}
    for name in shared:
        ours, theirs = (table.__dataclass_fields__[name] for table in (SinkOptions, SourceOptions))
        assert ours.metadata["meaning"] == theirs.metadata["meaning"]
        assert ours.default == theirs.default
