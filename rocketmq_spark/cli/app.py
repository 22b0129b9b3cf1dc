"""Commands and their options. A user's mistake is one sentence and exit code 2, never a trace."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console

from rocketmq_spark import __version__
from rocketmq_spark.client import Client, Tls
from rocketmq_spark.errors import ClusterError, RocketMQError, UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

NAME_SERVER_VARIABLE = "ROCKETMQ_SPARK_NAMESRV"


def run(arguments: list[str] | None = None) -> int:
    """The exit code of the command in `arguments`, or in the process's own."""
    try:
        commands.main(arguments, prog_name="rocketmq-spark", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except RocketMQError as error:
        print(f"rocketmq-spark: {error}", file=sys.stderr)
        # What the machine lacks is not the user's typing.
        return 1 if isinstance(error, ClusterError) else 2
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nobody is left to be told anything.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens underneath.")
def commands(verbose: bool) -> None:
    """Apache RocketMQ for Apache Spark: look at a cluster, or run one."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG)


# --- options that every command against a cluster has -----------------------------------------


def connected(command: Command) -> Command:
    """Adds the options that say which cluster, and as whom; the command gets a `client`."""

    def with_client(**given: Any) -> Any:
        with _client(given) as client:
            return command(client=client, **given)

    with_client.__doc__ = command.__doc__
    with_client.__name__ = command.__name__
    decorated: Any = with_client
    for option in reversed(_CONNECTION_OPTIONS):
        decorated = option(decorated)
    inherited = getattr(command, "__click_params__", [])
    decorated.__click_params__ = [*inherited, *decorated.__click_params__]
    return decorated  # type: ignore[no-any-return]


_CONNECTION_OPTIONS = [
    click.option(
        "-n",
        "--name-server",
        envvar=NAME_SERVER_VARIABLE,
        required=True,
        show_envvar=True,
        help="host:port, several separated by a semicolon.",
    ),
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


def _client(given: dict[str, Any]) -> Client:
    ca, insecure = given.pop("tls_ca"), given.pop("tls_insecure")
    tls = Tls(ca=ca, verify=not insecure) if given.pop("tls") or ca or insecure else False
    return Client(
        given.pop("name_server"),
        access_key=given.pop("access_key") or "",
        secret_key=given.pop("secret_key") or "",
        namespace=given.pop("namespace"),
        timeout=given.pop("timeout"),
        tls=tls,
    )


# --- commands ---------------------------------------------------------------------------------


@commands.command()
@connected
@click.option("--system", is_flag=True, help="Also RocketMQ's own, retry and dead-letter topics.")
def topics(client: Client, system: bool) -> None:
    """List the topics."""
    for topic in client.topics(system=system):
        click.echo(topic)


@commands.command()
@connected
@click.argument("topic")
@click.option("--group", help="Also how far this consumer group is.")
def offsets(client: Client, topic: str, group: str | None) -> None:
    """Show a topic's queues: first and next offset, and what lies between."""
    from rocketmq_spark.cli.tables import offsets_table

    progress = {q: client.committed(group, q) for q in client.queues(topic)} if group else None
    Console().print(offsets_table(client.topic_offsets(topic), progress))


@commands.command()
@connected
@click.argument("topic")
@click.option("--earliest", is_flag=True, help="From the first message, not only new ones.")
@click.option("--no-follow", is_flag=True, help="Stop at the end of each queue.")
@click.option("--limit", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--tags", default="*", show_default=True, help="Only these: 'A || B'.")
@click.option("--sql", default="", help="Only what this SQL92 expression selects.")
def tail(client: Client, topic: str, **choices: Any) -> None:
    """Print messages as they come."""
    from rocketmq_spark.cli.tail import follow

    follow(client, topic, **choices)


@commands.command()
@click.option("--brokers", default=1, show_default=True, type=click.IntRange(1, 26))
@click.option("--slaves", default=0, show_default=True, type=click.IntRange(0, 9), help="Of each.")
@click.option("--name-servers", default=1, show_default=True, type=click.IntRange(1, 9))
@click.option("--version", "release", default="5.5.0", show_default=True, help="Of RocketMQ.")
@click.option("--topic", "topics_", multiple=True, help="Create it, with 4 queues on each broker.")
def cluster(
    brokers: int, slaves: int, name_servers: int, release: str, topics_: tuple[str, ...]
) -> None:
    """Run a real RocketMQ on this machine until Ctrl-C."""
    from rocketmq_spark.cli.cluster import serve

    serve(brokers, slaves, name_servers, release, topics_)


@commands.command()
@click.option("--version", "releases", multiple=True, default=["5.5.0"], show_default=True)
def jars(releases: tuple[str, ...]) -> None:
    """Download RocketMQ's jars now, so that a first start need not."""
    from rocketmq_spark.cli.cluster import fetch

    for release in releases:
        fetch(release)


@commands.command()
@click.option("--messages", default=100_000, show_default=True, type=click.IntRange(1))
def demo(messages: int) -> None:
    """Start a cluster, send messages in and read the same out."""
    from rocketmq_spark.cli.demo import show

    if messages > 5_000_000:
        raise UsageError(f"--messages {messages} would fill the disk; take at most 5,000,000")
    show(messages)
