"""The members of one cluster: names, ports, folders and settings, by the order they were added."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_spark.errors import ClusterError
from rocketmq_spark.local_cluster import config
from rocketmq_spark.local_cluster.nodes import Node
from rocketmq_spark.local_cluster.ports import Ports
from rocketmq_spark.local_cluster.security import Account


@dataclass(frozen=True)
class Plan:
    """What every broker of a cluster is told."""

    version: str
    slaves: int
    sync: bool
    account: Account | None
    settings: Mapping[str, str] = field(default_factory=dict)


class Members:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._ports = Ports()
        self._nodes: dict[str, Node] = {}

    def __repr__(self) -> str:
        return f"<Members {', '.join(self._nodes)}>"

    def __getitem__(self, name: str) -> Node:
        if name not in self._nodes:
            known = ", ".join(self._nodes)
            raise ClusterError(f"This local cluster has no {name!r}; its members are {known}.")
        return self._nodes[name]

    @property
    def all(self) -> list[Node]:
        return list(self._nodes.values())

    @property
    def name_servers(self) -> list[Node]:
        return [node for node in self.all if node.role == "name server"]

    @property
    def masters(self) -> list[Node]:
        return [node for node in self.all if node.role == "master"]

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.all if node.role != "name server"]

    def slaves_of(self, master: Node) -> list[Node]:
        return [n for n in self.brokers if n.broker_id and n.broker_name == master.broker_name]

    def add_name_server(self) -> Node:
        name = f"namesrv-{len(self.name_servers) + 1}"
        node = self._add(Node(name, "name server", self._ports.one(), self._folder / name))
        config.write_properties(node.conf, config.name_server_settings(node.port, node.folder))
        return node

    def add_master(self) -> Node:
        letters = string.ascii_lowercase[len(self.masters) :]
        if not letters:
            raise ClusterError("This local cluster has 26 brokers, and the alphabet has no more.")
        name = f"broker-{letters[0]}"
        node = Node(name, "master", self._ports.for_broker(), self._folder / name, name)
        return self._add_broker(node, node)

    def add_slaves(self, master: Node) -> list[Node]:
        """As many as the plan gives to each master."""
        return [self._add_slave(master, number) for number in range(1, self._plan.slaves + 1)]

    def _add_slave(self, master: Node, number: int) -> Node:
        name = f"{master.name}-slave" + (f"-{number}" if number > 1 else "")
        port, folder = self._ports.for_broker(), self._folder / name
        node = Node(name, "slave", port, folder, master.broker_name, number)
        return self._add_broker(node, master)

    def _add_broker(self, node: Node, master: Node) -> Node:
        plan = self._plan
        settings = config.broker_settings(
            version=plan.version,
            broker_name=node.broker_name,
            broker_id=node.broker_id,
            port=node.port,
            folder=node.folder,
            name_servers=";".join(server.address for server in self.name_servers),
            sync=plan.sync,
            slaves=plan.slaves,
            master_port=master.port,
        )
        account = plan.account.broker_settings(plan.version) if plan.account else {}
        node.host = plan.settings.get("brokerIP1", node.host)
        self._add(node)
        config.write_properties(node.conf, {**settings, **account, **plan.settings})
        return node

    def _add(self, node: Node) -> Node:
        node.folder.mkdir()
        self._nodes[node.name] = node
        return node
