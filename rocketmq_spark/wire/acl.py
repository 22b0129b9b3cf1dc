"""Request signatures: the same for ACL 1.0 and ACL 2.0."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_spark.errors import UsageError
from rocketmq_spark.wire.frame import Buffer


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account. Neither the secret key nor the token ever shows in a repr."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            # What an environment variable holds that is not UTF-8 becomes surrogates, which have no
            # bytes to sign. The exception of encode() would show the whole of it.
            if any("\ud800" <= letter <= "\udfff" for letter in getattr(self, name)):
                raise UsageError(
                    f"{name} is not text in UTF-8: look at the encoding of the environment "
                    "variable or file that it comes from"
                )

    def sign(self, ext: Mapping[str, str], body: Buffer = b"") -> dict[str, str]:
        """`ext` with the account and the signature of everything else in it.

        The text signed is the values in the order of their names, then the body. Nothing may be
        added afterwards.
        """
        signed = {name: value for name, value in ext.items() if name != "Signature"}
        signed["AccessKey"] = self.access_key
        if self.security_token:
            signed["SecurityToken"] = self.security_token
        text = "".join(signed[name] for name in sorted(signed)).encode()
        digest = hmac.new(self.secret_key.encode(), text, hashlib.sha1)
        digest.update(body)
        signed["Signature"] = base64.b64encode(digest.digest()).decode()
        return signed
