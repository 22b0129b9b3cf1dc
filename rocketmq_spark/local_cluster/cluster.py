"""LocalCluster: real name servers and brokers on the loopback, in a folder that goes with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rocketmq_spark.errors import ClusterError, UsageError
from rocketmq_spark.local_cluster import config as files
from rocketmq_spark.local_cluster import jars, loopback, security, tools
from rocketmq_spark.local_cluster.guard import own_session
from rocketmq_spark.local_cluster.java import find_java
from rocketmq_spark.local_cluster.jvm import ADMIN, Launcher
from rocketmq_spark.local_cluster.members import Members, Plan
from rocketmq_spark.local_cluster.nodes import Node, NodeInfo, PortTakenError
from rocketmq_spark.local_cluster.probe import Probe
from rocketmq_spark.local_cluster.process import Supervisor

if TYPE_CHECKING:
    from rocketmq_spark.client import Client

# A machine with all its processors taken needs many times the usual six.
_READY_SECONDS = 180.0
_PORT_RETRIES = 2
_MOST_BROKERS = 26


@dataclass(frozen=True)
class _Open:
    """What exists only while a cluster is open."""

    folder: Path
    supervisor: Supervisor
    members: Members
    launcher: Launcher
    probe: Probe
    tls: security.Tls | None


class LocalCluster:
    """A real RocketMQ, gone when the `with` block or this Python ends.

    `slaves` is per broker. Members are called namesrv-1, broker-a, broker-a-slave,
    broker-a-slave-2, broker-b and so on. `config` holds further settings for every broker and
    `jvm_args` further arguments for every Java process; both win over ours. `progress` is told
    about the download that the first use of a version needs.
    """

    def __init__(
        self,
        brokers: int = 1,
        slaves: int = 0,
        name_servers: int = 1,
        *,
        replication: Literal["async", "sync"] = "async",
        acl: bool | tuple[str, str] = False,
        tls: bool | Literal["require-client"] = False,
        version: str = jars.DEFAULT_VERSION,
        config: Mapping[str, str] | None = None,
        jvm_args: Sequence[str] = (),
        progress: jars.Progress | None = None,
    ) -> None:
        if not 1 <= brokers <= _MOST_BROKERS or slaves < 0 or name_servers < 1:
            raise UsageError(
                f"brokers={brokers}, slaves={slaves}, name_servers={name_servers}: a cluster has "
                f"1 to {_MOST_BROKERS} brokers, no or some slaves, and at least one name server."
            )
        if replication not in ("async", "sync"):
            raise UsageError(f"replication={replication!r} is neither 'async' nor 'sync'.")
        if tls not in (True, False, "require-client"):
            raise UsageError(f"tls={tls!r} is none of True, False and 'require-client'.")
        if acl and slaves and files.is_4(version):
            raise UsageError(
                f"RocketMQ {version}'s slaves do not sign what they ask of their master, so they "
                "learn of no topic under ACL: leave out acl or slaves, or use version='5.5.0'."
            )
        self.version = version
        self._account = security.account(acl, version)
        self._plan = Plan(version, slaves, replication == "sync", self._account, config or {})
        self._counts = (brokers, name_servers)
        self._tls_mode = tls
        self._jvm_args = tuple(jvm_args)
        self._progress = progress
        self._open: _Open | None = None

    def __repr__(self) -> str:
        if self._open is None:
            return f"<LocalCluster {self.version} closed>"
        members = ", ".join(str(node.info()) for node in self._open.members.all)
        return f"<LocalCluster {self.version}: {members}>"

    # --- beginning and end --------------------------------------------------------------------

    def __enter__(self) -> LocalCluster:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start everything; returns when every member has answered a request."""
        if self._open is not None:
            raise ClusterError("This local cluster is open already.")
        java, library = find_java(), jars.resolve(self.version, self._progress)
        for last in [False] * _PORT_RETRIES + [True]:
            if self._opened(java, library, last):
                return

    def close(self) -> None:
        """Kill everything and remove the folder; harmless the second time."""
        was, self._open = self._open, None
        if was is not None:
            was.supervisor.close()
            shutil.rmtree(was.folder, ignore_errors=True)

    def _opened(self, java: Path, library: Path, last: bool) -> bool:
        """Whether all have started; False if a port was lost to another program meanwhile."""
        folder = Path(tempfile.mkdtemp(prefix="rocketmq-spark-"))
        try:
            self._open = self._prepare(java, library, folder)
            self._start_all(self._open.members)
        except BaseException as e:
            self.close()
            shutil.rmtree(folder, ignore_errors=True)
            if last or not isinstance(e, PortTakenError):
                raise
            return False
        return True

    def _prepare(self, java: Path, library: Path, folder: Path) -> _Open:
        home, scratch, confined = folder / "home", folder / "scratch", folder / "loopback.jar"
        scratch.mkdir()
        files.write_home(home, self.version)
        tls = None
        if self._account:
            self._account.write(home, self.version)
        if self._tls_mode:
            tls = security.make_tls(folder / "tls", self._tls_mode == "require-client")
        loopback.write_jar(library, self.version, confined)
        classpath = f"{confined}{os.pathsep}{library / '*'}"
        return _Open(
            folder=folder,
            supervisor=Supervisor(folder),
            members=Members(folder, self._plan),
            launcher=Launcher(java, classpath, home, scratch, tls, self._jvm_args),
            probe=Probe(tls.context() if tls else None, self._account),
            tls=tls,
        )

    def _start_all(self, members: Members) -> None:
        brokers, name_servers = self._counts
        # One after the other: a broker that finds no name server, and a slave that finds no
        # master, asks again only ten seconds later.
        self._start([members.add_name_server() for _ in range(name_servers)])
        self._start([members.add_master() for _ in range(brokers)])
        self._start([slave for m in members.masters for slave in members.add_slaves(m)])

    # --- what it is ---------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        """host:port;host:port, as RocketMQ writes it."""
        return ";".join(node.address for node in self._now().members.name_servers)

    @property
    def name_servers(self) -> dict[str, NodeInfo]:
        return {node.name: node.info() for node in self._now().members.name_servers}

    @property
    def brokers(self) -> dict[str, NodeInfo]:
        """Masters and slaves."""
        return {node.name: node.info() for node in self._now().members.brokers}

    @property
    def cluster_name(self) -> str:
        return files.CLUSTER_NAME

    @property
    def folder(self) -> Path:
        return self._now().folder

    @property
    def access_key(self) -> str | None:
        return self._account.access_key if self._account else None

    @property
    def secret_key(self) -> str | None:
        return self._account.secret_key if self._account else None

    @property
    def tls_ca(self) -> Path | None:
        tls = self._now().tls
        return tls.ca if tls else None

    @property
    def tls_cert(self) -> Path | None:
        """A client certificate signed by `tls_ca`; `tls_key` is its private key."""
        tls = self._now().tls
        return tls.cert if tls else None

    @property
    def tls_key(self) -> Path | None:
        tls = self._now().tls
        return tls.key if tls else None

    def log(self, name: str) -> str:
        """What a member has said since it was started last."""
        return self._now().members[name].log_text()

    # --- members: stop, start and worse -------------------------------------------------------

    def stop(self, name: str) -> None:
        """End a member in order (SIGTERM) and wait until it has ended."""
        self._now().members[name].alive().stop()

    def kill(self, name: str) -> None:
        """End a member at once (SIGKILL)."""
        self._now().members[name].alive().kill()

    def pause(self, name: str) -> None:
        """Freeze a member (SIGSTOP): its connections stay, its answers do not come."""
        self._now().members[name].alive().pause()

    def resume(self, name: str) -> None:
        self._now().members[name].alive().resume()

    def start(self, name: str) -> None:
        """Start a member that has ended, with the ports and data it had."""
        node = self._now().members[name]
        if node.running:
            raise ClusterError(f"{name} is running already.")
        self._start([node])

    def add_broker(self) -> str:
        """One more master, with slaves if the others have some; returns its name."""
        members = self._now().members
        master = members.add_master()
        self._start([master])
        self._start(members.add_slaves(master))
        return master.name

    def _start(self, nodes: Sequence[Node]) -> None:
        now = self._now()
        for node in nodes:
            node.start(now.supervisor, now.launcher)
        deadline = time.monotonic() + _READY_SECONDS
        for node in nodes:
            self._wait_until(partial(self._ready, node), nodes, deadline)

    def _ready(self, node: Node) -> bool:
        members, probe = self._now().members, self._now().probe
        if node.role == "name server":
            known = probe.registered(node.address)
            return known is not None and known >= {b.address for b in members.brokers if b.serving}
        listed = all(
            node.address in (probe.registered(server.address) or ())
            for server in members.name_servers
            if server.serving
        )
        return listed and probe.answers(node.address) and self._replicating(node)

    def _replicating(self, node: Node) -> bool:
        """Whether a slave is linked to its master, which in 5.x is seconds after it registers."""
        members = self._now().members
        if node.role != "slave" or files.is_4(self.version):
            return True
        master = members[node.broker_name]
        linked = sum(slave.serving for slave in members.slaves_of(master))
        return not master.serving or self._now().probe.replicas(master.address) >= linked

    def _wait_until(
        self, condition: Callable[[], bool], watched: Sequence[Node], deadline: float
    ) -> None:
        while not condition():
            for node in watched:
                node.check()
            if time.monotonic() > deadline:
                words = "\n".join(f"{node.name}:\n{node.tail()}" for node in watched)
                raise ClusterError(
                    f"RocketMQ {self.version} was not ready after {_READY_SECONDS:.0f} s; "
                    f"is this machine very busy? Its last words were:\n{words}"
                )
            time.sleep(0.15)

    # --- tools --------------------------------------------------------------------------------

    def client(self, **options: Any) -> Client:
        """This package's client, with the account and certificates that this cluster wants."""
        from rocketmq_spark.client import Client, Tls

        tls = self._now().tls
        if tls:
            options.setdefault("tls", Tls(str(tls.ca), str(tls.cert), str(tls.key)))
        if self._account:
            options.setdefault("access_key", self._account.access_key)
            options.setdefault("secret_key", self._account.secret_key)
        return Client(self.name_server, **options)

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        brokers: Iterable[str] | None = None,
        **settings: Any,
    ) -> None:
        """Make a topic with so many queues on each (given) master; waits for every name server.

        `settings` are those of Client.create_topic: read_queues, perm, attributes.
        """
        members, probe = self._now().members, self._now().probe
        masters = (
            [members[name] for name in brokers]
            if brokers is not None
            else [master for master in members.masters if master.serving]
        )
        names = {master.broker_name for master in masters}
        with self.client(timeout=15.0) as client:
            client.create_topic(topic, queues, brokers=sorted(names), **settings)
        deadline = time.monotonic() + _READY_SECONDS
        for address in [server.address for server in members.name_servers if server.serving]:
            routed = partial(_routed, probe, address, topic, names)
            self._wait_until(routed, masters, deadline)

    def mqadmin(self, *args: str) -> str:
        """Run RocketMQ's own admin tool and return what it printed: mqadmin("topicList")."""
        launcher = self._now().launcher
        where = ["-n", self.name_server] if args and args[0] != "help" else []
        command = launcher.command(ADMIN, *args, *where)
        return tools.run_admin(command, launcher.env(), args, self.secret_key or "")

    def run_java(
        self,
        source: str | Path,
        *args: str,
        jvm_args: Sequence[str] = (),
        stdin: str | None = None,
        timeout: float = 120.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a single-file Java program with RocketMQ's jars and this cluster's name server."""
        launcher = self._now().launcher
        command = launcher.program(Path(source), args, jvm_args, self.name_server)
        what = f"java {Path(source).name} {' '.join(args)}".rstrip()
        hidden = [self.secret_key or ""]
        done = tools.run(
            command, launcher.env(), timeout=timeout, what=what, stdin=stdin, hidden=hidden
        )
        if check and done.returncode != 0:
            said = tools.shorten(done.stderr + done.stdout)
            problem = f"{what} ended with code {done.returncode}:\n{said}"
            raise ClusterError(tools.hide(problem, hidden))
        return done

    def popen_java(
        self, source: str | Path, *args: str, jvm_args: Sequence[str] = (), **popen: Any
    ) -> subprocess.Popen[str]:
        """The same, but running beside us; it ends with the cluster at the latest."""
        launcher = self._now().launcher
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process: subprocess.Popen[str] = subprocess.Popen(
            launcher.program(Path(source), args, jvm_args, self.name_server),
            env=launcher.env(),
            text=True,
            encoding="utf-8",
            errors="replace",
            **{**pipes, **own_session(), **popen},
        )
        self._now().supervisor.adopt(process.pid)
        return process

    def _now(self) -> _Open:
        if self._open is None:
            raise ClusterError("This local cluster is closed: use it in a `with` block.")
        return self._open


def _routed(probe: Probe, name_server: str, topic: str, brokers: set[str]) -> bool:
    return brokers <= probe.brokers_of(name_server, topic)
