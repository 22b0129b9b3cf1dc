"""A member of the cluster: its name, port and folder, which outlive the process that runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocketmq_spark.errors import ClusterError
from rocketmq_spark.local_cluster.jvm import BROKER, NAME_SERVER, Launcher
from rocketmq_spark.local_cluster.ports import LOOPBACK
from rocketmq_spark.local_cluster.process import Process, Supervisor

Role = Literal["name server", "master", "slave"]

_TAIL_LINES = 15


class PortTakenError(ClusterError):
    """Another program took the port between our look and RocketMQ's."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a user may know of a member at this moment."""

    name: str
    role: Role
    address: str
    pid: int | None
    running: bool
    paused: bool
    broker_name: str
    broker_id: int

    def __str__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "stopped"
        return f"{self.name} ({self.role}, {self.address}, {state})"


@dataclass
class Node:
    name: str
    role: Role
    port: int
    folder: Path
    broker_name: str = ""
    broker_id: int = 0
    host: str = LOOPBACK
    process: Process | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """As RocketMQ registers it, which puts no brackets around an IPv6 host."""
        return f"{self.host}:{self.port}"

    @property
    def conf(self) -> Path:
        return self.folder / "server.conf"

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    @property
    def serving(self) -> bool:
        return self.running and self.process is not None and not self.process.paused

    def start(self, supervisor: Supervisor, launcher: Launcher) -> None:
        main = NAME_SERVER if self.role == "name server" else BROKER
        # What an earlier run said must not explain this one's failure.
        self.log.unlink(missing_ok=True)
        self.process = supervisor.start(
            launcher.command(main, "-c", str(self.conf)), launcher.env(), self.folder, self.log
        )

    def alive(self) -> Process:
        """The process, for whoever wants to signal it."""
        if self.process is None or not self.process.running:
            raise ClusterError(f"{self.name} is not running: start({self.name!r}) first.")
        return self.process

    def check(self) -> None:
        """Raise if the process has ended by itself."""
        if self.process is None or (code := self.process.code) is None:
            return
        kind = PortTakenError if "Address already in use" in self.log_text() else ClusterError
        raise kind(f"{self.name} ended with code {code}; its last words were:\n{self.tail()}")

    def log_text(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-_TAIL_LINES:]) or "(nothing)"

    def info(self) -> NodeInfo:
        running = self.running
        return NodeInfo(
            name=self.name,
            role=self.role,
            address=self.address,
            pid=self.process.pid if running and self.process else None,
            running=running,
            paused=bool(running and self.process and self.process.paused),
            broker_name=self.broker_name,
            broker_id=self.broker_id,
        )
