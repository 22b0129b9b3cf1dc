"""Brings RocketMQ's published jars into the user's cache folder, with the Ivy inside PySpark.

A version is a folder of the cache. It appears there by a rename when all of its jars have come,
so a broken download never counts, and of two processes that download at once the slower one finds
the folder there and throws its own away.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from rocketmq_spark.errors import ClusterError, UsageError
from rocketmq_spark.local_cluster.java import find_java

DEFAULT_VERSION = "5.5.0"

# Names a user's own Ivy settings, for networks that reach Maven artifacts only through a mirror.
SETTINGS_VARIABLE = "ROCKETMQ_SPARK_IVY_SETTINGS"

Progress = Callable[[str], None]

_MODULES = ("rocketmq-broker", "rocketmq-namesrv", "rocketmq-tools")

# Without a root, this resolver of Ivy's goes to Maven Central.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven"/>
  <resolvers><ibiblio name="maven" m2compatible="true"/></resolvers>
</ivysettings>
"""

# Ivy's words for what went wrong, the most telling first.
_REASONS = (
    re.compile(r"(UnknownHostException.*|Host \S+ not found.*)"),
    re.compile(r"([Ss]erver access error.*)"),
    re.compile(r"(\S+#\S+;\S+: not found)"),
    re.compile(r"(\S+: configuration not found.*)"),
    re.compile(r"((?:[\w.]+\.)?\w+(?:Exception|Error): .*)"),
    re.compile(r"((?:ERROR|WARN|FAILED).*)"),
)


def cache_folder() -> Path:
    """Where this user's downloads are kept, one folder per RocketMQ version."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "rocketmq-spark"


def resolve(version: str = DEFAULT_VERSION, progress: Progress | None = None) -> Path:
    """The folder that holds every jar of this version; downloads them the first time."""
    if not re.fullmatch(r"\d[\w.-]*", version):
        raise UsageError(f"version={version!r} is no RocketMQ version such as {DEFAULT_VERSION!r}.")
    folder = cache_folder() / version
    if folder.is_dir():
        return folder
    java, ivy = find_java(), find_ivy()
    settings = _users_settings()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=folder.parent))
    except OSError as e:
        raise ClusterError(f"The cache folder {folder.parent} cannot be written: {e}.") from e
    try:
        _download(version, java, ivy, settings, work, progress or (lambda line: None))
        _keep(work / "jars", folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def find_ivy() -> Path:
    """PySpark's Ivy jar. PySpark is looked up, never imported: that would cost a second."""
    advice = "pip install 'rocketmq-spark[spark]'"
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ClusterError(
            f"RocketMQ is downloaded with PySpark's Ivy, so PySpark is needed: {advice}."
        )
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise ClusterError(
            f"PySpark's {jars} holds no ivy-*.jar to download RocketMQ with: {advice}."
        )
    return found[-1]


def _users_settings() -> Path | None:
    named = os.environ.get(SETTINGS_VARIABLE)
    if not named:
        return None
    if not Path(named).is_file():
        raise ClusterError(f"{SETTINGS_VARIABLE}={named} is not a file: name an Ivy settings file.")
    return Path(named)


def _download(
    version: str, java: Path, ivy: Path, settings: Path | None, work: Path, progress: Progress
) -> None:
    if settings is None:
        settings = work / "settings.xml"
        settings.write_text(_SETTINGS, "utf-8")
    (work / "ivy.xml").write_text(_module(version), "utf-8")
    command = [str(java), "-Xmx512m", f"-Divy.default.ivy.user.dir={work / 'user'}"]
    command += ["-jar", str(ivy), "-settings", str(settings), "-ivy", str(work / "ivy.xml")]
    command += ["-cache", str(work / "ivy-cache"), "-types", "jar", "bundle", "-retrieve"]
    # The classifier keeps netty's native libraries for different machines apart.
    command += [(work / "jars").as_posix() + "/[artifact]-[revision](-[classifier]).[ext]"]
    progress(f"RocketMQ {version}: downloading, about two minutes the first time")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            said = _follow(version, process.stdout, progress)
        except BaseException:
            process.kill()
            raise
    missing = [m for m in _MODULES if not (work / "jars" / f"{m}-{version}.jar").is_file()]
    if process.returncode != 0 or missing:
        raise ClusterError(
            f"RocketMQ {version} could not be downloaded: {_reason(said)}; check the version and "
            f"the network, or name your own Ivy settings file in {SETTINGS_VARIABLE}."
        )
    count = len(list((work / "jars").glob("*.jar")))
    progress(f"RocketMQ {version}: all {count} jars are there")


def _module(version: str) -> str:
    wanted = "".join(
        f'<dependency org="org.apache.rocketmq" name="{name}" rev="{version}" '
        f'conf="default->default"/>\n'
        for name in _MODULES
    )
    return (
        '<ivy-module version="2.0"><info organisation="local" module="cluster"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{wanted}</dependencies></ivy-module>\n"
    )


def _follow(version: str, lines: Iterable[str], progress: Progress) -> list[str]:
    """Read Ivy's output as it comes, tell how far it is, and keep it for a failure's reason."""
    said: list[str] = []
    found = downloaded = 0
    for line in lines:
        said.append(line.rstrip())
        words = line.lstrip()
        if words.startswith("found "):
            found += 1
            if found % 20 == 0:
                progress(f"RocketMQ {version}: {found} modules found")
        elif "[SUCCESSFUL ]" in words:
            downloaded += 1
            if downloaded % 10 == 0:
                progress(f"RocketMQ {version}: {downloaded} jars downloaded")
    return said


def _reason(said: list[str]) -> str:
    for pattern in _REASONS:
        for line in said:
            match = pattern.search(line)
            if match:
                return match[1].strip().rstrip(".")
    return f"Ivy said {said[-1].strip()!r}" if said else "Ivy said nothing"


def _keep(jars: Path, folder: Path) -> None:
    try:
        jars.rename(folder)
    except OSError as e:
        if not folder.is_dir():
            raise ClusterError(f"The jars could not be moved to {folder}: {e}.") from e
