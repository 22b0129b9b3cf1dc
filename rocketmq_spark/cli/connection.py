"""The options that every command against a cluster has, and the client they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketmq_spark.client import Client, Tls
from rocketmq_spark.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

NAME_SERVER_VARIABLE = "ROCKETMQ_SPARK_NAMESRV"


def connected(command: Command) -> Command:
    """Adds the options that say which cluster, and as whom; the command gets a `client`."""

    def with_client(**given: Any) -> Any:
        with _connect(given)() as client:
            return command(client=client, **given)

    return _with_options(command, with_client, required=True)


def connectable(command: Command) -> Command:
    """The same for a command that can do without a cluster: it gets `connect`, which makes the
    client when it is needed."""

    def with_connect(**given: Any) -> Any:
        connect = _connect(given)
        return command(connect=connect, **given)

    return _with_options(command, with_connect, required=False)


def _with_options(command: Command, wrapper: Any, required: bool) -> Command:
    wrapper.__doc__ = command.__doc__
    wrapper.__name__ = command.__name__
    for option in reversed([_name_server(required), *_ACCOUNT_OPTIONS]):
        wrapper = option(wrapper)
    inherited = getattr(command, "__click_params__", [])
    wrapper.__click_params__ = [*inherited, *wrapper.__click_params__]
    return wrapper  # type: ignore[no-any-return]


def _name_server(required: bool) -> Any:
    return click.option(
        "-n",
        "--name-server",
        envvar=NAME_SERVER_VARIABLE,
        required=required,
        show_envvar=True,
        help="host:port, several separated by a semicolon.",
    )


_ACCOUNT_OPTIONS = [
    click.option(
        "--access-key", envvar="ROCKETMQ_ACCESS_KEY", show_envvar=True, help="The account's name."
    ),
    click.option(
        "--secret-key",
        envvar="ROCKETMQ_SECRET_KEY",
        show_envvar=True,
        help="Its secret; better in the environment than typed.",
    ),
    click.option("--namespace", default="", help="Prefix of topic and group names."),
    click.option("--tls", is_flag=True, help="Speak TLS."),
    click.option("--tls-ca", default="", help="CA file to trust; implies --tls."),
    click.option("--tls-insecure", is_flag=True, help="Trust any certificate; implies --tls."),
    click.option(
        "--timeout", default=5.0, show_default=True, metavar="SECONDS", help="For each request."
    ),
]


def _connect(given: dict[str, Any]) -> Callable[[], Client]:
    """Takes the options above out of `given`; what it returns makes the client."""
    ca, insecure = given.pop("tls_ca"), given.pop("tls_insecure")
    tls = Tls(ca=ca, verify=not insecure) if given.pop("tls") or ca or insecure else False
    name_server = given.pop("name_server")
    settings = {
        "access_key": given.pop("access_key") or "",
        "secret_key": given.pop("secret_key") or "",
        "namespace": given.pop("namespace"),
        "timeout": given.pop("timeout"),
    }

    def connect() -> Client:
        if not name_server:
            raise UsageError(
                "which cluster? Give --name-server host:port, or plan without one: "
                "--queues broker-a:4,broker-b:4"
            )
        return Client(name_server, tls=tls, **settings)

    return connect
