"""`rocketmq-spark plan`: who reads which queue, before anybody does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rocketmq_spark.cli import plan_input, plan_json, plan_view
from rocketmq_spark.cli.connection import connectable
from rocketmq_spark.cli.console import Console
from rocketmq_spark.cli.plan_params import Choices
from rocketmq_spark.client import Client
from rocketmq_spark.core import plan as planner
from rocketmq_spark.core.allocate import STRATEGIES, strategy_name
from rocketmq_spark.core.compare import Entry
from rocketmq_spark.core.grid import ROWS, counted, plan_grid, rebalance_grid
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import distinct_members
from rocketmq_spark.core.picture import comparison_html, grid_html, page
from rocketmq_spark.core.rebalance import rebalance
from rocketmq_spark.errors import ConnectError, UsageError

Assignment = Mapping[str, Sequence[MessageQueue]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is to be shared, and among whom."""

    queues: Sequence[MessageQueue]
    members: Sequence[str]
    starts: Mapping[MessageQueue, int]
    ends: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Before:
    """What was there: a plan from a file, or who and what was there for the same strategy."""

    plan: Assignment | None = None
    facts: Facts | None = None


@click.command()
@connectable
@click.option("--topic", "topics", multiple=True, help="One or several: T, or T1,T2, or repeated.")
@click.option("--queues", metavar="broker-a:4,...", help="Plan these, without any cluster.")
@click.option("--executors", metavar="ID,...", help="The members, such as 10.0.0.1@1,10.0.0.2@2.")
@click.option("--group", help="Its live members and its lag, where not given otherwise.")
@click.option("--strategy", default="AVG", show_default=True, help=", ".join(STRATEGIES) + ".")
@click.option(
    "--scope",
    type=click.Choice(["all", "topic"]),
    default="all",
    show_default=True,
    help="All topics in one list, or each by itself as RocketMQ's consumers do.",
)
@click.option("--virtual-nodes", type=click.IntRange(0), help="Of CONSISTENT_HASH; 10 if not said.")
@click.option("--hosts", metavar="HOST,...", help="FIXED: only members on these consume.")
@click.option("--rooms", metavar="ROOM,...", help="MACHINE_ROOM: only queues of room@broker.")
@click.option("--config", metavar="FILE", help="CONFIG: a plan as --json writes it.")
@click.option("--inner", metavar="STRATEGY", help="MACHINE_ROOM_NEARBY: inside a room (AVG).")
@click.option(
    "--member-rooms",
    metavar="START=ROOM,...|FILE.json",
    help="MACHINE_ROOM_NEARBY: a member's room, by how its id begins.",
)
@click.option(
    "--broker-rooms",
    metavar="START=ROOM,...|FILE.json",
    help="MACHINE_ROOM_NEARBY: a broker's room, where names are not room@name.",
)
@click.option(
    "--lag",
    metavar="broker-a:0=120,...|FILE.json",
    help="BY_LAG: messages to read; online it is asked for.",
)
@click.option("--was", metavar="ID,...", help="The members before: show what a rebalance moves.")
@click.option("--was-queues", metavar="broker-a:4,...", help="The queues before.")
@click.option("--compare", metavar="FILE", help="The plan before, as --json wrote it.")
@click.option("--all", "every", is_flag=True, help="All strategies side by side.")
@click.option(
    "--rows", default=ROWS, show_default=True, type=click.IntRange(1), help="Members shown."
)
@click.option("--json", "as_json", is_flag=True, help="In the shape of mqadmin allocateMQ.")
@click.option("--html", metavar="FILE", help="Write the picture as one page.")
def plan(
    connect: Callable[[], Client],
    topics: Sequence[str],
    queues: str | None,
    executors: str | None,
    group: str | None,
    lag: str | None,
    was: str | None,
    was_queues: str | None,
    compare: str | None,
    strategy: str,
    every: bool,
    rows: int,
    as_json: bool,
    html: str | None,
    **params: Any,
) -> None:
    """Show who would read which queue.

    Sorted and shared as RocketMQ's own consumers do, queue for queue. (mqadmin allocateMQ forgets
    to sort, so what it shows is not what consumers get.)

    \b
      rocketmq-spark plan -n 127.0.0.1:9876 --topic orders --executors 10.0.0.1@1,10.0.0.2@2
      rocketmq-spark plan --queues broker-a:4,broker-b:4 --executors a,b,c --was a,b
    """
    names = plan_input.topic_names(topics)
    choices = Choices.of(
        params,
        hashable=bool(names) or (queues is not None and "/" in queues),
        weighed=queues is None or lag is not None,
    )
    strategy_name(strategy)  # a name that does not exist is refused even where it is not used
    if not every:
        choices.check(strategy)
    weigh = every or choices.weighs(strategy)
    if queues is None:
        facts = _online(connect, names, executors, group, weigh)
    else:
        facts = _offline(plan_input.queues(queues, names), executors, group)
    if lag is not None:
        weights = plan_input.lags(lag, facts.queues)
        facts = Facts(facts.queues, facts.members, dict.fromkeys(weights, 0), weights)
    before = _before(facts, names, was, was_queues, compare)

    if every:
        entries = [_entry(name, facts, choices, before) for name in STRATEGIES]
        title, told = _all_title(facts), plan_json.comparison(entries)
    else:
        entries = [_planned(strategy, facts, choices, before)]
        title, told = f"{strategy_name(strategy, params['inner'])} plan", plan_json.one(entries[0])
    if html is not None:
        _write(html, page(title, _picture(entries, every, title, rows)))
    if as_json:
        click.echo(told)
    elif html is None:
        _print(entries, every, title, rows)


# --- what there is ----------------------------------------------------------------------------


def _online(
    connect: Callable[[], Client],
    topics: Sequence[str],
    executors: str | None,
    group: str | None,
    weigh: bool,
) -> Facts:
    client = connect()
    if not topics:
        raise UsageError("which topic? Give --topic T, or several: --topic T1,T2")
    with client:
        try:
            members = _members(executors, group, client)
            queues = [queue for topic in topics for queue in client.queues(topic)]
            starts = ends = dict.fromkeys(queues, 0)
            if weigh or group:
                offsets = {q: at for t in topics for q, at in client.topic_offsets(t).items()}
                ends = {queue: offsets[queue][1] for queue in queues}
                starts = {queue: _start(client, group, queue, offsets[queue]) for queue in queues}
        except ConnectError as error:
            raise UsageError(
                f"{error} Or plan without a cluster: --queues broker-a:4,broker-b:4"
            ) from error
    return Facts(queues, members, starts, ends)


def _start(client: Client, group: str | None, queue: MessageQueue, at: tuple[int, int]) -> int:
    """Where the group goes on; the first message without a group, or where it never was."""
    low, high = at
    done = client.committed(group, queue) if group else None
    return low if done is None else min(max(done, low), high)


def _offline(queues: Sequence[MessageQueue], executors: str | None, group: str | None) -> Facts:
    if group:
        raise UsageError(
            "--group asks a cluster; leave out --queues, or give --executors and --lag"
        )
    nothing = dict.fromkeys(queues, 0)
    return Facts(queues, _members(executors, None, None), nothing, nothing)


def _members(executors: str | None, group: str | None, client: Client | None) -> list[str]:
    if executors is not None:
        return distinct_members(plan_input.words(executors, "--executors"))
    if group is None or client is None:
        raise UsageError(
            "who shares the queues? Give --executors 10.0.0.1@1,10.0.0.2@2"
            + (", or --group for its live members" if client else "")
        )
    members = client.consumers(group)
    if not members:
        raise UsageError(f"group {group} has no live members; give --executors")
    return distinct_members(members)


def _before(
    facts: Facts, topics: Sequence[str], was: str | None, was_queues: str | None, file: str | None
) -> Before | None:
    if file is not None:
        if was is not None or was_queues is not None:
            raise UsageError("--compare tells all that was before; leave out --was or --compare")
        return Before(plan=plan_input.assignment(file, "--compare"))
    if was is None and was_queues is None:
        return None
    members: Sequence[str] = facts.members
    if was is not None:
        members = distinct_members(plan_input.words(was, "--was"))
    queues = facts.queues
    if was_queues is not None:
        queues = plan_input.queues(was_queues, topics, "--was-queues")
    starts = {queue: facts.starts.get(queue, 0) for queue in queues}
    ends = {queue: facts.ends.get(queue, 0) for queue in queues}
    return Before(facts=Facts(queues, members, starts, ends))


# --- plans ------------------------------------------------------------------------------------


def _planned(strategy: str, facts: Facts, choices: Choices, before: Before | None) -> Entry:
    previous: Assignment | None = None
    if before is not None and before.facts is not None:
        previous = _plan(strategy, before.facts, choices, None).assignment
    elif before is not None:
        previous = before.plan
    made = _plan(strategy, facts, choices, previous)
    return Entry(strategy, made, None if previous is None else rebalance(previous, made))


def _plan(
    strategy: str, facts: Facts, choices: Choices, previous: Assignment | None
) -> planner.Plan:
    options = planner.PlanOptions(
        strategy=strategy, scope=choices.scope, params=choices.params(strategy)
    )
    return planner.plan(
        facts.queues, facts.members, facts.starts, facts.ends, options, previous=previous
    )


def _entry(strategy: str, facts: Facts, choices: Choices, before: Before | None) -> Entry:
    try:
        return _planned(strategy, facts, choices, before)
    except UsageError as reason:
        return Entry(strategy, reason=str(reason).removeprefix(f"{strategy} "))


# --- pictures ---------------------------------------------------------------------------------


def _all_title(facts: Facts) -> str:
    shared = counted(len(facts.queues), "queue")
    return f"{shared} among {counted(len(facts.members), 'member')}"


def _picture(entries: Sequence[Entry], every: bool, title: str, rows: int) -> str:
    if every:
        return comparison_html(entries, title, "The same input, shared by each strategy.", rows)
    return grid_html(_grid(entries[0], rows))


def _print(entries: Sequence[Entry], every: bool, title: str, rows: int) -> None:
    console = Console(highlight=False)
    if every:
        plan_view.print_comparison(console, entries, title)
    else:
        plan_view.print_grid(console, _grid(entries[0], rows))


def _grid(entry: Entry, rows: int) -> Any:
    assert entry.plan is not None
    if entry.change is None:
        return plan_grid(entry.plan, rows=rows)
    return rebalance_grid(entry.change, f"{entry.plan.strategy} rebalance", rows)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--html: cannot write {path}: {error.strerror}") from error
    click.echo(f"wrote {path}", err=True)
