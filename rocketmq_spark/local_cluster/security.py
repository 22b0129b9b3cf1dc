"""Accounts (ACL 2.0 and 1.0) and certificates of a local cluster."""

from __future__ import annotations

import json
import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_spark.errors import ClusterError, UsageError
from rocketmq_spark.local_cluster.config import is_4, write_properties
from rocketmq_spark.local_cluster.ports import LOOPBACK

# ACL 1.0 refuses shorter ones (its PlainPermissionManager).
_SHORTEST_4 = 7

_AUTH = "org.apache.rocketmq.auth"


@dataclass(frozen=True)
class Account:
    """The one super user of a cluster."""

    access_key: str
    secret_key: str = field(repr=False)

    def broker_settings(self, version: str) -> dict[str, str]:
        if is_4(version):
            return {"aclEnable": "true"}
        kinds = {"authentication": "Authentication", "authorization": "Authorization"}
        settings = {
            "initAuthenticationUser": json.dumps(
                {"username": self.access_key, "password": self.secret_key}
            ),
            # Brokers sign with this what they ask of each other.
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": self.access_key, "secretKey": self.secret_key}
            ),
        }
        for key, word in kinds.items():
            provider = f"{_AUTH}.{key}.provider"
            settings[f"{key}Enabled"] = "true"
            settings[f"{key}Provider"] = f"{provider}.Default{word}Provider"
            settings[f"{key}MetadataProvider"] = f"{provider}.Local{word}MetadataProvider"
        return settings

    def write(self, home: Path, version: str) -> None:
        """What mqadmin signs with, and for ACL 1.0 the list of accounts. JSON is YAML."""
        keys = {"accessKey": self.access_key, "secretKey": self.secret_key}
        (home / "conf" / "tools.yml").write_text(json.dumps(keys), "utf-8")
        if is_4(version):
            accounts = {"accounts": [{**keys, "admin": True}]}
            (home / "conf" / "plain_acl.yml").write_text(json.dumps(accounts), "utf-8")


def account(acl: bool | tuple[str, str], version: str) -> Account | None:
    if acl is False:
        return None
    if acl is True:
        return Account("rocketmq-spark", secrets.token_hex(12))
    if not (isinstance(acl, tuple) and len(acl) == 2 and all(isinstance(a, str) for a in acl)):
        raise UsageError('acl is True, False or a pair such as ("user", "password").')
    if is_4(version) and min(map(len, acl)) < _SHORTEST_4:
        raise UsageError(
            f"RocketMQ {version} wants an access key and a secret key of at least "
            f"{_SHORTEST_4} characters: make those in acl=(...) longer."
        )
    return Account(*acl)


@dataclass(frozen=True)
class Tls:
    """Files of PEM text: who signs, and what a client shows."""

    ca: Path
    cert: Path
    key: Path
    properties: Path

    def jvm_flags(self) -> list[str]:
        """For servers and for Java clients alike: a broker is both."""
        return [
            "-Dtls.server.mode=enforcing",
            "-Dtls.enable=true",
            "-Dtls.test.mode.enable=false",
            f"-Dtls.config.file={self.properties}",
        ]

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        return context


def make_tls(folder: Path, require_client: bool) -> Tls:
    """A new certificate authority, and certificates of its own for the servers and for clients."""
    try:
        import trustme
    except ImportError as e:
        raise ClusterError(
            "tls= makes its certificates with the library trustme: "
            "pip install 'rocketmq-spark[dev]'."
        ) from e
    folder.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for who, issued in (
        ("server", authority.issue_cert(LOOPBACK, "::1", "localhost")),
        ("client", authority.issue_cert("client@rocketmq-spark.test")),
    ):
        with (folder / f"{who}.pem").open("wb") as out:
            for blob in issued.cert_chain_pems:
                out.write(blob.bytes())
        key = folder / f"{who}.key"
        key.touch(0o600)
        key.write_bytes(_pkcs8(issued.private_key_pem.bytes()))
    tls = Tls(folder / "ca.pem", folder / "client.pem", folder / "client.key", folder / "tls.conf")
    write_properties(
        tls.properties,
        {
            "tls.test.mode.enable": "false",
            "tls.server.certPath": (folder / "server.pem").as_posix(),
            "tls.server.keyPath": (folder / "server.key").as_posix(),
            "tls.server.trustCertPath": tls.ca.as_posix(),
            "tls.server.authClient": "true" if require_client else "false",
            "tls.server.need.client.auth": "require" if require_client else "none",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": tls.ca.as_posix(),
            "tls.client.certPath": tls.cert.as_posix(),
            "tls.client.keyPath": tls.key.as_posix(),
        },
    )
    return tls


def _pkcs8(pem: bytes) -> bytes:
    """The only form of a private key that Java reads without help."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
