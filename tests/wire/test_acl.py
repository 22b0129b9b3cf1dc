"""Signatures: Java's own results, and what must not leak."""

from __future__ import annotations

import traceback

import pytest

from rocketmq_spark.errors import UsageError
from rocketmq_spark.wire.acl import Credentials

SECRET = "sk12345678"
FIELDS = {"topic": "TopicA", "queueId": "3", "consumerGroup": "g1"}


def test_javas_signature_of_fields_and_body() -> None:
    signed = Credentials("ak", SECRET).sign(FIELDS, b"body")
    assert signed == {**FIELDS, "AccessKey": "ak", "Signature": "5sq1WLoacc0FgFYMw3/+PXaV8Hc="}


def test_javas_signature_with_a_token() -> None:
    signed = Credentials("ak", SECRET, "tok").sign(FIELDS)
    assert signed["SecurityToken"] == "tok"
    assert signed["Signature"] == "mmw+SveL5wjiW8mltcGlTwdeQ80="


def test_order_is_by_name_with_capitals_first() -> None:
    account = Credentials("ak", SECRET)
    assert account.sign({"b": "2", "B": "1"}) == account.sign({"B": "1", "b": "2"})
    assert (
        account.sign({"B": "1", "a": "2"})["Signature"]
        == (
            account.sign({"X": "1", "y": "2"})["Signature"]  # only values are signed, X before y
        )
    )


def test_signing_twice_is_signing_once() -> None:
    account = Credentials("ak", SECRET, "tok")
    once = account.sign(FIELDS, b"body")
    assert account.sign(once, b"body") == once


@pytest.mark.parametrize("body", [bytearray(b"body"), memoryview(b"body")])
def test_any_buffer_is_a_body(body: bytearray | memoryview) -> None:
    assert Credentials("ak", SECRET).sign(FIELDS, body)["Signature"] == (
        "5sq1WLoacc0FgFYMw3/+PXaV8Hc="
    )


def test_text_is_utf_8() -> None:
    assert Credentials("用户", "密码").sign({"topic": "主题"})["Signature"]


def test_the_secrets_never_show() -> None:
    account = Credentials("ak", SECRET, "tok-en")
    for text in (repr(account), str(account), f"{account}"):
        assert "ak" in text
        assert SECRET not in text
        assert "tok-en" not in text


@pytest.mark.parametrize("name", ["access_key", "secret_key", "security_token"])
def test_what_cannot_be_signed_is_refused_and_not_shown(name: str) -> None:
    # As os.environ gives a variable that is not UTF-8.
    wrong = b"hu\xffsh".decode(errors="surrogateescape")
    given = {"access_key": "ak", "secret_key": "sk", name: wrong}
    with pytest.raises(UsageError, match=f"{name} is not text in UTF-8") as caught:
        Credentials(**given)
    shown = "".join(traceback.format_exception(caught.value))
    assert "hu" not in shown and "udcff" not in shown
    assert caught.value.__context__ is None  # encode()'s own exception would hold it
