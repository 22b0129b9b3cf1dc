"""The text files a RocketMQ home needs, and the settings of its servers.

Settings are chosen for tests that fail only for their own reason: no topics by accident, SQL
filters on, small files, room on a shared disk, and patience with a machine that is busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocketmq_spark.local_cluster.ports import LOOPBACK

CLUSTER_NAME = "DefaultCluster"

# 5.x carries its own copy of logback under its own package name.
_LOGBACK_5 = "org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender"
_LOGBACK_4 = "ch.qos.logback.core.ConsoleAppender"

# Warnings go to stdout, so that the last lines of a process's output tell why it failed.
_LOGBACK = """\
<configuration>
  <appender name="out" class="{appender}">
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %level %logger{{0}} %msg%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="out"/></root>
</configuration>
"""


def is_4(version: str) -> bool:
    return version.startswith("4.")


def write_home(home: Path, version: str) -> None:
    """ROCKETMQ_HOME with a log configuration per program: 4.9 insists on these names."""
    conf = home / "conf"
    conf.mkdir(parents=True)
    appender = _LOGBACK_4 if is_4(version) else _LOGBACK_5
    for program, level in (("namesrv", "WARN"), ("broker", "WARN"), ("tools", "OFF")):
        text = _LOGBACK.format(appender=appender, level=level)
        (conf / f"logback_{program}.xml").write_text(text, "utf-8")


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Java's properties format, which is Latin-1 and uses the backslash for its own purposes."""
    lines = []
    for key, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        # Java's escapes are UTF-16 units.
        units = escaped.encode("utf-16-be")
        pairs = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
        lines.append(f"{key}=" + "".join(chr(u) if u < 0x7F else f"\\u{u:04x}" for u in pairs))
    path.write_text("\n".join(lines) + "\n", "ascii")


def name_server_settings(port: int, folder: Path) -> dict[str, str]:
    return {
        "listenPort": str(port),
        "bindAddress": LOOPBACK,
        "kvConfigPath": (folder / "kvConfig.json").as_posix(),
        "scanNotActiveBrokerInterval": "1000",
    }


def broker_settings(
    *,
    version: str,
    broker_name: str,
    broker_id: int,
    port: int,
    folder: Path,
    name_servers: str,
    sync: bool,
    slaves: int,
    master_port: int,
) -> dict[str, str]:
    """One broker. `slaves` is how many its master has, `master_port` where that listens."""
    store = folder / "store"
    settings = {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": broker_name,
        "brokerId": str(broker_id),
        "namesrvAddr": name_servers,
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "bindAddress": LOOPBACK,
        "brokerIP1": LOOPBACK,
        "brokerIP2": LOOPBACK,
        "brokerRole": "SLAVE" if broker_id else "SYNC_MASTER" if sync else "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "storePathRootDir": store.as_posix(),
        "storePathCommitLog": (store / "commitlog").as_posix(),
        "autoCreateTopicEnable": "false",
        "enablePropertyFilter": "true",
        # Files are mapped whole: these are large enough to fill slowly and small enough to make.
        "mappedFileSizeCommitLog": str(128 * 1024 * 1024),
        "maxHashSlotNum": "500000",
        "maxIndexNum": "2000000",
        "diskMaxUsedSpaceRatio": "95",
        # The shortest that RocketMQ accepts: a name server that comes back soon knows everyone.
        "registerNameServerPeriod": "10000",
        # Defaults of 200 ms and 1 s refuse sends on a machine that is merely busy.
        "waitTimeMillsInSendQueue": "3000",
        "osPageCacheBusyTimeOutMills": "5000",
        # TransactionMetricsFlushService of 5.5.0 spins until its first interval is over: for ten
        # seconds by default, just when others start (apache/rocketmq#10515). 4.9 knows neither
        # this nor the next.
        "transactionMetricFlushInterval": "1000",
        # Every second by default, a fifth of what a broker with nothing to do takes. After a kill,
        # messages with a time of delivery that were due in the last ten seconds may come twice.
        "timerFlushIntervalMs": "10000",
    }
    if slaves:
        settings["slaveReadEnable"] = "true"
        settings["totalReplicas"] = str(slaves + 1)
    if slaves and sync:
        # From 5.0 on a SYNC_MASTER waits for no slave unless it is told how many replicas to have.
        settings["inSyncReplicas"] = "2"
    if broker_id and is_4(version):
        # Links a 4.9 slave to its master at once. 5.x forgets it before it could use it, and then
        # does not listen to the name servers either.
        settings["haMasterAddress"] = f"{LOOPBACK}:{master_port + 1}"
    return settings
