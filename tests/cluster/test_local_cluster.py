"""LocalCluster against the real RocketMQ, and its rooms one by one without it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import traceback
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_spark.client import Client, Message, Tls
from rocketmq_spark.errors import (
    AuthenticationError,
    ClusterError,
    NetworkError,
    NoPermissionError,
    RequestTimeoutError,
    UsageError,
)
from rocketmq_spark.local_cluster import LocalCluster, config, jars, java, loopback, ports, tools
from rocketmq_spark.local_cluster.guard import started_at
from rocketmq_spark.local_cluster.process import Supervisor

ROOT = Path(__file__).resolve().parents[2]

HELLO = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Hello {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("hello");
        producer.setMqClientApiTimeout(60000);
        producer.start();
        try {
            Message message = new Message(args[0], "hi".getBytes());
            System.out.println(producer.send(message, 60000).getSendStatus());
            System.in.read();
        } finally {
            producer.shutdown();
        }
    }
}
"""


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    """Alive and not a zombie that nobody has asked about."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()[:1] not in ("", "Z")


def is_listening(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((address, port)) == 0


def other_addresses() -> list[str]:
    """This machine's addresses that are not 127.0.0.1; all of 127/8 reach a wildcard listener."""
    found = {"127.0.0.2"} if sys.platform == "linux" else set()
    with contextlib.suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    return sorted(a for a in found if ":" not in a and a not in ("127.0.0.1",))


def assert_loopback_only(cluster: LocalCluster) -> None:
    listeners = [int(n.address.split(":")[1]) for n in cluster.name_servers.values()]
    for broker in cluster.brokers.values():
        port = int(broker.address.split(":")[1])
        listeners += [port, port - 2, port + 1]
    for port in listeners:
        assert is_listening("127.0.0.1", port)
        for address in other_addresses():
            assert not is_listening(address, port), f"{address}:{port} answers"


def send(client: Client, topic: str, *bodies: str) -> int:
    return len(client.send(topic, [Message(body) for body in bodies]))


# --- one cluster of the newest release: two name servers, a master and its slave ------------------


@pytest.fixture(scope="module")
def replicated() -> Iterator[LocalCluster]:
    with LocalCluster(slaves=1, name_servers=2, replication="sync") as cluster:
        cluster.create_topic("T", queues=2)
        yield cluster


@pytest.fixture(scope="module")
def client(replicated: LocalCluster) -> Iterator[Client]:
    with replicated.client(timeout=30) as client:
        yield client


def test_members(replicated: LocalCluster, client: Client) -> None:
    assert list(replicated.name_servers) == ["namesrv-1", "namesrv-2"]
    assert replicated.name_server == ";".join(
        server.address for server in replicated.name_servers.values()
    )
    master, slave = replicated.brokers["broker-a"], replicated.brokers["broker-a-slave"]
    assert (master.role, master.broker_id, slave.role, slave.broker_id) == ("master", 0, "slave", 1)
    (known,) = client.brokers()
    assert known.broker_name == "broker-a"
    assert dict(known.addresses) == {0: master.address, 1: slave.address}
    assert "broker-a-slave (slave" in repr(replicated)
    assert "\n" not in repr(replicated)


def test_listens_on_the_loopback_only(replicated: LocalCluster) -> None:
    assert_loopback_only(replicated)


def test_both_name_servers_know_a_new_topic(replicated: LocalCluster) -> None:
    for server in replicated.name_servers.values():
        with Client(server.address) as client:
            assert [q.queue_id for q in client.queues("T")] == [0, 1]


def test_a_message_reaches_the_slave_before_it_is_acknowledged(
    replicated: LocalCluster, client: Client
) -> None:
    assert send(client, "T", "one", "two") == 2
    folders = [replicated.folder / name for name in ("broker-a", "broker-a-slave")]
    stored = []
    for folder in folders:
        with next((folder / "store" / "commitlog").iterdir()).open("rb") as log:
            stored.append(log.read(4096))
    assert b"one" in stored[0]
    assert stored[0] == stored[1]


def test_mqadmin(replicated: LocalCluster) -> None:
    route = replicated.mqadmin("topicRoute", "-t", "T")
    assert replicated.brokers["broker-a"].address in route
    with pytest.raises(ClusterError, match=r"mqadmin topicRoute -t Absent failed:(.|\n)*Absent"):
        replicated.mqadmin("topicRoute", "-t", "Absent")


def test_java_programs(replicated: LocalCluster, tmp_path: Path) -> None:
    source = tmp_path / "Hello.java"
    source.write_text(HELLO)
    done = replicated.run_java(source, "T", stdin="\n")
    assert done.stdout == "SEND_OK\n"
    with replicated.popen_java(source, "T") as beside:
        assert beside.stdout is not None
        assert beside.stdout.readline() == "SEND_OK\n"
        beside.kill()
    with pytest.raises(ClusterError, match=r"java Absent\.java ended with code 1:(.|\n)*Absent"):
        replicated.run_java(tmp_path / "Absent.java")


def test_pause_and_resume(replicated: LocalCluster, client: Client) -> None:
    replicated.pause("broker-a")
    try:
        assert replicated.brokers["broker-a"].paused
        address = replicated.brokers["broker-a"].address
        with Client(address, timeout=1) as hasty, pytest.raises(RequestTimeoutError):
            hasty.brokers()
    finally:
        replicated.resume("broker-a")
    assert not replicated.brokers["broker-a"].paused
    assert send(client, "T", "after the pause") == 1


def test_kill_and_start_again(replicated: LocalCluster) -> None:
    before = replicated.brokers["broker-a"]
    with replicated.client(timeout=30) as client:
        stored = client.topic_offsets("T")
        replicated.kill("broker-a")
        assert replicated.brokers["broker-a"].pid is None
        assert before.pid is not None
        assert not is_alive(before.pid)
        wait_for(lambda: client.brokers()[0].master is None, "the dead master's leaving the route")
        with pytest.raises(ClusterError, match="broker-a is not running"):
            replicated.kill("broker-a")
        replicated.start("broker-a")
        with pytest.raises(ClusterError, match="broker-a is running already"):
            replicated.start("broker-a")
        after = replicated.brokers["broker-a"]
        assert after.address == before.address
        assert after.pid != before.pid
        assert client.topic_offsets("T") == stored


def test_stop_a_name_server_and_start_it_again(replicated: LocalCluster) -> None:
    replicated.stop("namesrv-1")
    address = replicated.name_servers["namesrv-1"].address
    assert not replicated.name_servers["namesrv-1"].running
    with replicated.client() as client:
        assert client.queues("T")
    replicated.start("namesrv-1")
    with Client(address) as client:
        assert client.queues("T")


def test_add_broker(replicated: LocalCluster, client: Client) -> None:
    assert replicated.add_broker() == "broker-b"
    assert {b.broker_name: sorted(b.addresses) for b in client.brokers()} == {
        "broker-a": [0, 1],
        "broker-b": [0, 1],
    }
    replicated.create_topic("OnB", queues=1, brokers=["broker-b"])
    assert [q.broker_name for q in client.queues("OnB")] == ["broker-b"]


def test_unknown_member(replicated: LocalCluster) -> None:
    with pytest.raises(ClusterError, match=r"no 'broker-x'; its members are namesrv-1, "):
        replicated.stop("broker-x")


# --- accounts and certificates -------------------------------------------------------------------


def test_acl_and_tls() -> None:
    with LocalCluster(acl=("someone", "secret words"), tls="require-client") as cluster:
        cluster.create_topic("T", queues=1)
        assert "secret words" not in repr(cluster)
        with cluster.client(timeout=30) as client:
            assert send(client, "T", "signed and sealed") == 1
        assert "T" in cluster.mqadmin("topicList").split()
        for tool in (cluster.mqadmin, cluster.run_java):
            with pytest.raises(ClusterError, match=r"nonsense \*\*\* (failed|ended)") as failed:
                tool("nonsense", "secret words")
            assert "secret words" not in str(failed.value)
        assert_loopback_only(cluster)

        ca = str(cluster.tls_ca)
        tls = Tls(ca, str(cluster.tls_cert), str(cluster.tls_key))
        server = cluster.name_server
        with Client(server, tls=tls, timeout=30) as client, pytest.raises(NoPermissionError):
            client.create_topic("No", 1)
        account = {"access_key": "someone", "secret_key": "another word"}
        with Client(server, tls=tls, **account, timeout=30) as client:  # noqa: SIM117
            with pytest.raises(AuthenticationError):
                client.create_topic("No", 1)
        for wrong in (False, Tls(ca)):
            with Client(server, tls=wrong, timeout=5) as client, pytest.raises(NetworkError):
                client.brokers()


# --- the other version, and the end of everything -------------------------------------------------


def test_4_9(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first port is lost to another program between our look and RocketMQ's.
    busy = socket.create_server(("127.0.0.1", 0))
    first, pick = iter([busy.getsockname()[1]]), ports.Ports.one
    monkeypatch.setattr(ports.Ports, "one", lambda self: next(first, None) or pick(self))
    with busy, LocalCluster(acl=True, tls=True, version="4.9.7") as cluster:
        assert next(first, "used") == "used"
        cluster.create_topic("T", queues=1)
        with cluster.client(timeout=30) as client:
            assert send(client, "T", "old but real") == 1
        assert_loopback_only(cluster)
        assert "T" in cluster.mqadmin("topicList").split()
        with Client(cluster.name_server, tls=str(cluster.tls_ca), timeout=30) as client:  # noqa: SIM117
            with pytest.raises(NoPermissionError):
                client.create_topic("No", 1)
        cluster.stop("broker-a")
        cluster.start("broker-a")
        folder = cluster.folder
        pids = [node.pid for node in cluster.brokers.values()]
    assert not folder.exists()
    assert not any(is_alive(pid) for pid in pids if pid)
    with pytest.raises(ClusterError, match="closed"):
        cluster.name_server  # noqa: B018


CHILD = """
import json, time
from rocketmq_spark.local_cluster import LocalCluster
cluster = LocalCluster(version="4.9.7")
cluster.open()
cluster.pause("broker-a")
nodes = [*cluster.name_servers.values(), *cluster.brokers.values()]
print(json.dumps([str(cluster.folder), [node.pid for node in nodes]]), flush=True)
time.sleep(600)
"""


def test_nothing_is_left_when_python_is_killed() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        folder, pids = json.loads(child.stdout.readline())
        assert Path(folder).is_dir()
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        child.kill()
    wait_for(lambda: not any(map(is_alive, pids)), "the end of the Java processes")
    wait_for(lambda: not Path(folder).exists(), "the end of the folder")


def test_a_broker_that_cannot_start_says_why() -> None:
    broken = LocalCluster(version="4.9.7", config={"brokerRole": "SLAVE"})
    with pytest.raises(ClusterError, match=r"broker-a ended with code(.|\n)*brokerId must be > 0"):
        broken.open()
    assert repr(broken) == "<LocalCluster 4.9.7 closed>"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"brokers": 0}, "brokers=0"),
        ({"brokers": 27}, "1 to 26 brokers"),
        ({"slaves": -1}, "slaves=-1"),
        ({"name_servers": 0}, "name_servers=0"),
        ({"replication": "maybe"}, "'maybe'"),
        ({"tls": "yes"}, "'yes'"),
        ({"acl": "me"}, "acl is True, False or a pair"),
        ({"acl": ("me", "secret"), "version": "4.9.7"}, "at least 7 characters"),
        ({"acl": True, "slaves": 1, "version": "4.9.7"}, "do not sign"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        LocalCluster(**arguments)  # type: ignore[arg-type]


# --- guard and processes, without Java ------------------------------------------------------------


def test_guard_kills_the_paused_and_the_adopted_and_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    supervisor = Supervisor(folder)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours = supervisor.start(sleep, dict(os.environ), folder, folder / "log")
    ours.pause()
    stranger = subprocess.Popen(sleep)
    try:
        supervisor.adopt(stranger.pid)
        supervisor.hang_up()
        assert stranger.wait(120) == -signal.SIGKILL
    finally:
        stranger.kill()
    supervisor.close()
    assert not is_alive(ours.pid)
    assert not folder.exists()


def test_a_stopped_process_ends_in_order_even_when_paused(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    supervisor = Supervisor(folder)
    program = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    program += "print('up', flush=True)\ntime.sleep(600)"
    try:
        command = [sys.executable, "-c", program]
        process = supervisor.start(command, dict(os.environ), folder, folder / "log")
        wait_for(lambda: "up" in (folder / "log").read_text(), "the start")
        process.pause()
        process.stop()
        assert process.code == 7
        process.kill()  # harmless
        with pytest.raises(ClusterError, match="could not start: FileNotFoundError"):
            supervisor.start(["no-such-program"], {}, folder, folder / "log")
    finally:
        supervisor.close()
    with pytest.raises(ClusterError, match="is gone"):
        process.running  # noqa: B018


def test_a_forked_child_does_not_keep_the_guard_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    program = f"""
import os, sys, time
from pathlib import Path
from rocketmq_spark.local_cluster.process import Supervisor
supervisor = Supervisor(Path({str(folder)!r}))
supervisor.start([sys.executable, "-c", "import time; time.sleep(600)"], {{}}, "/", os.devnull)
child = os.fork()
if child == 0:
    time.sleep(60)
print(child, flush=True)
os.kill(os.getpid(), 9)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
    try:
        wait_for(lambda: not folder.exists(), "the guard's work")
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_started_at_tells_processes_apart() -> None:
    assert started_at(os.getpid()) == started_at(os.getpid()) != ""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert started_at(gone.pid) == ""


# --- Java and Ivy, played by a script -------------------------------------------------------------

FAKE_JAVA = """#!{python}
import sys, pathlib
args = sys.argv[1:]
if args == ["-version"]:
    print('{says}', file=sys.stderr)
    sys.exit(0)
if {fails}:
    print("\\t\\t:: org.apache.rocketmq#rocketmq-broker;1.2.3: not found")
    sys.exit(1)
jars = pathlib.Path(args[args.index("-retrieve") + 1]).parent
jars.mkdir()
for n in range(12):
    print("\\t[SUCCESSFUL ] x#y%d;1!y.jar (1ms)" % n)
for name in ("broker", "namesrv", "tools")[: {jars}]:
    (jars / f"rocketmq-{{name}}-1.2.3.jar").write_text("")
"""


def fake_java(
    folder: Path, says: str = 'openjdk version "17.0.1"', fails: bool = False, jars: int = 3
) -> Path:
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = FAKE_JAVA.format(python=sys.executable, says=says, fails=fails, jars=jars)
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder / "jdk"


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path)))
    assert java.find_java() == tmp_path / "jdk" / "bin" / "java"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "jdk" / "bin"))
    assert java.find_java() == tmp_path / "jdk" / "bin" / "java"


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ('openjdk version "1.8.0_392"', "Java 8 .* is too old"),
        ('openjdk version "11.0.2"', "Java 11 .* is too old"),
        ("no such thing", "said 'no such thing', which is no Java"),
    ],
)
def test_java_that_will_not_do(
    says: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, says)))
    with pytest.raises(ClusterError, match=words):
        java.find_java()


def test_java_check_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-m", "rocketmq_spark.local_cluster.java"]

    def check(**env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)

    good = check(JAVA_HOME=str(fake_java(tmp_path)))
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    bad = check(PATH=str(tmp_path))
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("No Java on PATH: install Java 17 or later")
    assert bad.stderr.count("\n") == 1


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jars, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv(jars.SETTINGS_VARIABLE, raising=False)
    return tmp_path / "cache"


def test_resolve(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path)))
    said: list[str] = []
    folder = jars.resolve("1.2.3", said.append)
    assert folder == cache / "1.2.3"
    assert len(list(folder.iterdir())) == 3
    assert list(cache.iterdir()) == [folder], "something temporary was left"
    assert "RocketMQ 1.2.3: 10 jars downloaded" in said
    assert said[-1] == "RocketMQ 1.2.3: all 3 jars are there"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert jars.resolve("1.2.3") == folder, "the second time needs nothing"


@pytest.mark.parametrize(("fails", "count"), [(True, 0), (False, 2)])
def test_a_failed_download_does_not_count(
    fails: bool, count: int, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, fails=fails, jars=count)))
    with pytest.raises(ClusterError, match=r"RocketMQ 1\.2\.3 could not be downloaded: ") as error:
        jars.resolve("1.2.3")
    assert "rocketmq-broker;1.2.3: not found" in str(error.value) or not fails
    assert list(cache.iterdir()) == []


def test_two_downloads_at_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path)))

    def the_other_is_faster(line: str) -> None:
        if "all 3 jars" in line:
            (cache / "1.2.3").mkdir()
            (cache / "1.2.3" / "theirs.jar").touch()

    folder = jars.resolve("1.2.3", the_other_is_faster)
    assert [jar.name for jar in folder.iterdir()] == ["theirs.jar"]
    assert list(cache.iterdir()) == [folder]


def test_what_resolve_refuses(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path)))
    with pytest.raises(UsageError, match="no RocketMQ version"):
        jars.resolve("../5.5.0")
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(tmp_path / "absent.xml"))
    with pytest.raises(ClusterError, match=r"absent\.xml is not a file"):
        jars.resolve("1.2.3")
    monkeypatch.setattr(jars, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"pip install 'rocketmq-spark\[spark\]'"):
        jars.resolve("1.2.3")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert jars.cache_folder() == Path("/somewhere/rocketmq-spark")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jars.cache_folder() == Path.home() / ".cache" / "rocketmq-spark"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jars.cache_folder() == Path.home() / "Library" / "Caches" / "rocketmq-spark"


# --- small things ---------------------------------------------------------------------------------


def test_a_version_that_cannot_be_confined_is_refused(tmp_path: Path) -> None:
    for name in ("store", "remoting"):
        with zipfile.ZipFile(tmp_path / f"rocketmq-{name}-9.jar", "w") as archive:
            archive.writestr("org/apache/rocketmq/Other.class", b"")
    with pytest.raises(ClusterError, match="cannot be kept on the loopback"):
        loopback.write_jar(tmp_path, "9", tmp_path / "out.jar")


def test_ports_are_handed_out_once_and_only_if_free() -> None:
    taken = ports.Ports()
    several = [taken.for_broker() for _ in range(20)]
    all_of_them = [p + offset for p in several for offset in (-2, 0, 1)]
    assert len(set(all_of_them)) == 60
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        assert not ports.is_free(busy.getsockname()[1])


def test_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    config.write_properties(tmp_path / "p", {"a": "C:\\x", "b": "naïve 😀", "c": '{"k":"v"}'})
    assert (tmp_path / "p").read_text() == (
        'a=C:\\\\x\nb=na\\u00efve \\ud83d\\ude00\nc={"k":"v"}\n'
    )


def test_mqadmin_is_judged_by_what_it_says() -> None:
    def admin(program: str, *args: str) -> str:
        return tools.run_admin([sys.executable, "-c", program], dict(os.environ), args)

    assert admin("print('java.lang.String is no error')", "topicList") == (
        "java.lang.String is no error\n"
    )
    assert "usage" in admin("print('usage: mqadmin topicList')", "help", "topicList")
    for failure in (
        "import sys; sys.exit(1)",
        "print('org.apache.rocketmq.client.exception.MQClientException: CODE: 17')",
        "print('The sub command nonsense not exist.')",
        "print('usage: mqadmin topicList')",
    ):
        with pytest.raises(ClusterError, match="mqadmin topicList failed"):
            admin(failure, "topicList")


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ("createUser -u me -p hush", "createUser -u me -p ***"),
        ("createUser -phush -t Super", "createUser -p*** -t Super"),
        ("createUser --pass=hush", "createUser --pass=***"),
        ("updateUser --password hush -s enable", "updateUser --password *** -s enable"),
        ("updateAclConfig -a me -s hush", "updateAclConfig -a me -s ***"),
        ("updateAclConfig --secretKey=hush", "updateAclConfig --secretKey=***"),
        ("updateBrokerConfig -v {our-own}", "updateBrokerConfig -v {***}"),
        ("createAcl -s User:me -a Pub", "createAcl -s User:me -a Pub"),
        ("updateTopic -p 6", "updateTopic -p 6"),
    ],
)
def test_errors_of_mqadmin_keep_secrets(args: str, shown: str) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit(' '.join(sys.argv[1:]))", *args.split()]
    with pytest.raises(ClusterError) as caught:
        tools.run_admin(command, dict(os.environ), args.split(), secret="our-own")
    assert str(caught.value) == f"mqadmin {shown} failed:\n{shown}"


def test_a_program_that_does_not_end_says_how_far_it_came_but_no_secret() -> None:
    secret = uuid.uuid4().hex
    program = "import sys, time; print('so far', sys.argv[1], flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program, secret]
    words = r"it -p \*{3} did not end within 4 s; it said:\nso far \*{3}$"
    with pytest.raises(ClusterError, match=words) as caught:
        tools.run(command, dict(os.environ), timeout=4, what=f"it -p {secret}", hidden=[secret])
    assert secret not in "".join(traceback.format_exception(caught.value))
