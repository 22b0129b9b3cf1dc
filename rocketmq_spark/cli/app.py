"""Commands and their options. A user's mistake is one sentence and exit code 2, never a trace."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from rocketmq_spark import __version__
from rocketmq_spark.cli.connection import connected
from rocketmq_spark.cli.console import Console
from rocketmq_spark.cli.plan import plan
from rocketmq_spark.client import Client
from rocketmq_spark.errors import ClusterError, RocketMQError


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
    except SystemExit:
        # Click's way out when the reader of our output has gone (`| head`): nobody is left to be
        # told anything, and nothing went wrong.
        return 0
    return 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens underneath.")
def commands(verbose: bool) -> None:
    """Apache RocketMQ for Apache Spark: look at a cluster, or run one."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG)


commands.add_command(plan)


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
@click.option("--sink", is_flag=True, help="Those of the sink.")
def options(sink: bool) -> None:
    """Print every option of the Spark source, or of the sink, as a table in Markdown."""
    from rocketmq_spark.core import options, sink_options

    click.echo((sink_options if sink else options).as_markdown(), nl=False)


@commands.command()
@click.option("--brokers", default=1, show_default=True, type=click.IntRange(1, 26))
@click.option(
    "--slaves", default=0, show_default=True, type=click.IntRange(0, 9), help="Per broker."
)
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

    fetch(releases)


@commands.command()
@click.option(
    "--rate",
    default=2_000,
    show_default=True,
    type=click.IntRange(100, 20_000),
    help="Orders a second.",
)
def demo(rate: int) -> None:
    """Count orders with Spark while queues and brokers are added, and check the count."""
    from rocketmq_spark.cli.demo.story import show

    show(rate)
