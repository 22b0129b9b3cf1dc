"""LocalCluster: real name servers and brokers on the loopback, in a folder that goes with them."""

from __future__ import annotations

import os
import shutil
import ssl
import string
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rocketmq_spark.errors import ClusterError, UsageError
from rocketmq_spark.local_cluster import config as files
from rocketmq_spark.local_cluster import jars, loopback, probe, security, tools
from rocketmq_spark.local_cluster.guard import own_session
from rocketmq_spark.local_cluster.java import find_java
from rocketmq_spark.local_cluster.jvm import ADMIN, Launcher
from rocketmq_spark.local_cluster.nodes import Node, NodeInfo, PortTakenError
from rocketmq_spark.local_cluster.ports import Ports
from rocketmq_spark.local_cluster.process import Supervisor

_READY_SECONDS = 90.0
_PORT_RETRIES = 2


class LocalCluster:
    """A real RocketMQ, gone when the `with` block or this Python ends.

    `slaves` is per broker. Members are called namesrv-1, broker-a, broker-a-slave,
    broker-a-slave-2, broker-b and so on. `config` holds further settings for every broker.
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
        progress: jars.Progress | None = None,
    ) -> None:
        if not 1 <= brokers <= len(string.ascii_lowercase) or slaves < 0 or name_servers < 1:
            raise UsageError(
                f"brokers={brokers}, slaves={slaves}, name_servers={name_servers}: a cluster has "
                "1 to 26 brokers, no or some slaves, and at least one name server."
            )
        if replication not in ("async", "sync"):
            raise UsageError(f"replication={replication!r} is neither 'async' nor 'sync'.")
        if tls not in (True, False, "require-client"):
            raise UsageError(f"tls={tls!r} is none of True, False and 'require-client'.")
        self.version = version
        self._shape = (brokers, slaves, name_servers)
        self._slaves = slaves
        self._sync = replication == "sync"
        self._config = dict(config or {})
        self._account = security.account(acl, version)
        self._tls_mode = tls
        self._progress = progress
        self._nodes: dict[str, Node] = {}
        self._folder: Path | None = None
        self._supervisor: Supervisor | None = None
        self._launcher: Launcher | None = None
        self._tls: security.Tls | None = None
        self._context: ssl.SSLContext | None = None
        self._ports = Ports()

    def __repr__(self) -> str:
        if self._supervisor is None:
            return f"<LocalCluster {self.version} closed>"
        members = ", ".join(str(node.info()) for node in self._nodes.values())
        return f"<LocalCluster {self.version}: {members}>"

    # --- beginning and end ----------------------------------------------------------------

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
        if self._supervisor is not None:
            raise ClusterError("This local cluster is open already.")
        java, library = find_java(), jars.resolve(self.version, self._progress)
        for last in [False] * _PORT_RETRIES + [True]:
            if self._opened(java, library, last):
                return

    def close(self) -> None:
        """Kill everything and remove the folder; harmless the second time."""
        supervisor, self._supervisor = self._supervisor, None
        folder, self._folder = self._folder, None
        self._nodes = {}
        if supervisor is not None:
            supervisor.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _opened(self, java: Path, library: Path, last: bool) -> bool:
        """Whether all have started; False if a port was lost to another program meanwhile."""
        try:
            self._open(java, library)
        except BaseException as e:
            self.close()
            if last or not isinstance(e, PortTakenError):
                raise
            return False
        return True

    def _open(self, java: Path, library: Path) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="rocketmq-spark-"))
        self._supervisor = Supervisor(folder)
        home, scratch = folder / "home", folder / "scratch"
        scratch.mkdir()
        files.write_home(home, self.version)
        if self._account:
            self._account.write(home, self.version)
        if self._tls_mode:
            self._tls = security.make_tls(folder / "tls", self._tls_mode == "require-client")
            self._context = self._tls.context()
        loopback.write_jar(library, self.version, folder / "loopback.jar")
        classpath = f"{folder / 'loopback.jar'}{os.pathsep}{library / '*'}"
        self._launcher = Launcher(java, classpath, home, scratch, self._tls)

        brokers, slaves, name_servers = self._shape
        for number in range(1, name_servers + 1):
            self._add_name_server(f"namesrv-{number}")
        masters = [self._add_master() for _ in range(brokers)]
        # A slave that starts before its master is known waits long until it asks again.
        self._start([*self._members("name server"), *masters])
        self._start([self._add_slave(m, i) for m in masters for i in range(1, slaves + 1)])

    # --- what it is -----------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        """host:port;host:port, as RocketMQ writes it."""
        return ";".join(node.address for node in self._members("name server"))

    @property
    def name_servers(self) -> dict[str, NodeInfo]:
        return {node.name: node.info() for node in self._members("name server")}

    @property
    def brokers(self) -> dict[str, NodeInfo]:
        """Masters and slaves."""
        return {node.name: node.info() for node in self._members("master", "slave")}

    @property
    def cluster_name(self) -> str:
        return files.CLUSTER_NAME

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ClusterError("This local cluster is closed: use it in a `with` block.")
        return self._folder

    @property
    def access_key(self) -> str | None:
        return self._account.access_key if self._account else None

    @property
    def secret_key(self) -> str | None:
        return self._account.secret_key if self._account else None

    @property
    def tls_ca(self) -> Path | None:
        return self._tls.ca if self._tls else None

    @property
    def tls_cert(self) -> Path | None:
        """A client certificate signed by `tls_ca`, and `tls_key` its private key."""
        return self._tls.cert if self._tls else None

    @property
    def tls_key(self) -> Path | None:
        return self._tls.key if self._tls else None

    @property
    def java_classpath(self) -> str:
        return self._running_launcher().classpath

    def log(self, name: str) -> str:
        """What a member has said since it was started last."""
        return self._node(name).log_text()

    # --- members: stop, start and worse ---------------------------------------------------

    def stop(self, name: str) -> None:
        """End a member in order (SIGTERM) and wait until it has ended."""
        self._node(name).alive().stop()

    def kill(self, name: str) -> None:
        """End a member at once (SIGKILL)."""
        self._node(name).alive().kill()

    def pause(self, name: str) -> None:
        """Freeze a member (SIGSTOP): its connections stay, its answers do not come."""
        self._node(name).alive().pause()

    def resume(self, name: str) -> None:
        self._node(name).alive().resume()

    def start(self, name: str) -> None:
        """Start a member that has ended, with the ports and data it had."""
        node = self._node(name)
        if node.running:
            raise ClusterError(f"{name} is running already.")
        self._start([node])

    def add_broker(self) -> str:
        """One more master, with slaves if the others have some; returns its name."""
        master = self._add_master()
        self._start([master])
        self._start([self._add_slave(master, i) for i in range(1, self._slaves + 1)])
        return master.name

    def _start(self, nodes: Sequence[Node]) -> None:
        supervisor, launcher = self._running_supervisor(), self._running_launcher()
        for node in nodes:
            node.start(supervisor, launcher)
        deadline = time.monotonic() + _READY_SECONDS
        for node in nodes:
            self._wait_until(partial(self._ready, node), nodes, deadline)

    def _ready(self, node: Node) -> bool:
        if node.role == "name server":
            known = probe.registered(node.address, self._context)
            serving = {b.address for b in self._members("master", "slave") if b.serving}
            return known is not None and known >= serving
        listed = all(
            node.address in (probe.registered(n.address, self._context) or ())
            for n in self._members("name server")
            if n.serving
        )
        return listed and probe.answers(node.address, self._context)

    def _wait_until(
        self, condition: Callable[[], bool], watched: Iterable[Node], deadline: float
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
            time.sleep(0.05)

    # --- tools ----------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        brokers: Iterable[str] | None = None,
        attributes: str = "",
    ) -> None:
        """Make a topic with so many queues on each (given) broker; waits until it is in the route.

        `attributes` are mqadmin's, such as "+message.type=DELAY".
        """
        masters = [n for n in self._members("master") if n.serving]
        args = ["-t", topic, "-r", str(queues), "-w", str(queues)]
        args += ["-a", attributes] if attributes else []
        if brokers is None:
            self.mqadmin("updateTopic", "-c", self.cluster_name, *args)
        else:
            masters = [self._node(name) for name in brokers]
            for node in masters:
                self.mqadmin("updateTopic", "-b", node.address, *args)
        expected = {node.broker_name for node in masters}
        deadline = time.monotonic() + _READY_SECONDS
        for server in self._members("name server"):
            if server.serving:
                routed = partial(self._routed, server, topic, expected)
                self._wait_until(routed, masters, deadline)

    def _routed(self, server: Node, topic: str, expected: set[str]) -> bool:
        return expected <= probe.brokers_of(server.address, self._context, topic)

    def mqadmin(self, *args: str) -> str:
        """Run RocketMQ's own admin tool and return what it printed: mqadmin("topicList")."""
        launcher = self._running_launcher()
        where = ["-n", self.name_server] if args and args[0] != "help" else []
        return tools.run_admin(launcher.command(ADMIN, *args, *where), launcher.env(), args)

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
        launcher = self._running_launcher()
        command = launcher.program(Path(source), args, jvm_args, self.name_server)
        what = f"java {Path(source).name} {' '.join(args)}".rstrip()
        done = tools.run(command, launcher.env(), timeout=timeout, what=what, stdin=stdin)
        if check and done.returncode != 0:
            said = tools.shorten(done.stderr + done.stdout)
            raise ClusterError(f"{what} ended with code {done.returncode}:\n{said}")
        return done

    def popen_java(
        self,
        source: str | Path,
        *args: str,
        jvm_args: Sequence[str] = (),
        **popen: Any,
    ) -> subprocess.Popen[str]:
        """The same, but running beside us; it ends with the cluster at the latest."""
        launcher = self._running_launcher()
        command = launcher.program(Path(source), args, jvm_args, self.name_server)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process: subprocess.Popen[str] = subprocess.Popen(
            command,
            env=launcher.env(),
            text=True,
            encoding="utf-8",
            errors="replace",
            **{**pipes, **own_session(), **popen},
        )
        self._running_supervisor().adopt(process.pid)
        return process

    # --- making members -------------------------------------------------------------------

    def _add_name_server(self, name: str) -> Node:
        node = self._add(Node(name, "name server", self._ports.one(), self.folder / name))
        files.write_properties(node.conf, files.name_server_settings(node.port, node.folder))
        return node

    def _add_master(self) -> Node:
        used = {node.broker_name for node in self._members("master")}
        names = (f"broker-{letter}" for letter in string.ascii_lowercase)
        name = next((n for n in names if n not in used), None)
        if name is None:
            raise ClusterError("This local cluster has 26 brokers, and the alphabet has no more.")
        node = Node(name, "master", self._ports.for_broker(), self.folder / name, name)
        return self._add_broker(node, node)

    def _add_slave(self, master: Node, number: int) -> Node:
        name = f"{master.name}-slave" + (f"-{number}" if number > 1 else "")
        port, folder = self._ports.for_broker(), self.folder / name
        node = Node(name, "slave", port, folder, master.broker_name, number)
        return self._add_broker(node, master)

    def _add_broker(self, node: Node, master: Node) -> Node:
        self._add(node)
        settings = files.broker_settings(
            broker_name=node.broker_name,
            broker_id=node.broker_id,
            port=node.port,
            folder=node.folder,
            name_servers=self.name_server,
            sync=self._sync,
            slaves=self._slaves,
            master_port=master.port,
        )
        account = self._account.broker_settings(self.version) if self._account else {}
        files.write_properties(node.conf, {**settings, **account, **self._config})
        return node

    def _add(self, node: Node) -> Node:
        node.folder.mkdir()
        self._nodes[node.name] = node
        return node

    # --- lookups --------------------------------------------------------------------------

    def _members(self, *roles: str) -> list[Node]:
        return [node for node in self._nodes.values() if node.role in roles]

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            known = ", ".join(self._nodes) or "none, it is closed"
            raise ClusterError(f"This local cluster has no {name!r}; its members are {known}.")
        return self._nodes[name]

    def _running_launcher(self) -> Launcher:
        if self._supervisor is None or self._launcher is None:
            raise ClusterError("This local cluster is closed: use it in a `with` block.")
        return self._launcher

    def _running_supervisor(self) -> Supervisor:
        if self._supervisor is None:
            raise ClusterError("This local cluster is closed: use it in a `with` block.")
        return self._supervisor
