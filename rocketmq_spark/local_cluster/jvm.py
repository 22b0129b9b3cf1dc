"""The command lines of RocketMQ's programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocketmq_spark.local_cluster.security import Tls

NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER = "org.apache.rocketmq.broker.BrokerStartup"
ADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"

# Short work: the first compiler alone and the simplest collector start fastest.
_QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_FLAGS = {
    NAME_SERVER: ["-Xms64m", "-Xmx256m", *_QUICK],
    ADMIN: ["-Xmx256m", *_QUICK],
    # Benchmarks run against brokers, so both compilers. The two ratios are not settings in 4.9,
    # which also reaches into Java's own classes when it deletes a file it has mapped.
    BROKER: [
        "-Xms256m",
        "-Xmx1g",
        "-XX:+UseParallelGC",
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    ],
}

# Read by 5.x from this property; 4.9 looks for these names by itself.
_LOG = {
    NAME_SERVER: "logback_namesrv.xml",
    BROKER: "logback_broker.xml",
    ADMIN: "logback_tools.xml",
}


@dataclass(frozen=True)
class Launcher:
    """Everything the command lines of one cluster share."""

    java: Path
    classpath: str
    home: Path
    scratch: Path
    tls: Tls | None
    jvm_args: Sequence[str] = ()

    def command(self, main: str, *args: str) -> list[str]:
        flags = [*self._common(main), *_FLAGS[main], *self.jvm_args]
        return [*flags, "-cp", self.classpath, main, *args]

    def program(
        self, source: Path, args: Sequence[str], jvm_args: Sequence[str], name_server: str
    ) -> list[str]:
        """A program in a single source file, which Java compiles as it starts it."""
        where = f"-Drocketmq.namesrv.addr={name_server}"
        flags = [*self._common(ADMIN), where, *self.jvm_args, *jvm_args]
        return [*flags, "-cp", self.classpath, str(source), *args]

    def env(self) -> dict[str, str]:
        # A name server named in the user's environment is not ours.
        env = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
        return {**env, "ROCKETMQ_HOME": str(self.home)}

    def _common(self, logs_like: str) -> list[str]:
        flags = [
            str(self.java),
            "-Xshare:auto",
            "-XX:-UsePerfData",  # would write outside of our folder
            "-Djava.net.preferIPv4Stack=true",
            f"-Duser.home={self.scratch}",
            f"-Djava.io.tmpdir={self.scratch}",
            f"-Drocketmq.home.dir={self.home}",
            f"-Drmq.logback.configurationFile={self.home / 'conf' / _LOG[logs_like]}",
        ]
        # Left to itself, every server makes a certificate when it starts, for a second or two.
        return flags + (self.tls.jvm_flags() if self.tls else ["-Dtls.server.mode=disabled"])
