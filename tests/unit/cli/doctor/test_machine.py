"""`duralog doctor` on simulated machines: its verdict on each setting, and the suggested change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duralog.cli.doctor.check import Check, Level
from duralog.cli.doctor.command import all_checks
from duralog.cli.doctor.compiled_kernels import KernelFacts
from duralog.cli.doctor.disk import disk_checks, mount_of
from duralog.cli.doctor.machine import Machine, Python, Space
from duralog.cli.doctor.memory import memory_checks
from duralog.cli.doctor.process import process_checks
from duralog.cli.doctor.python import parse_requirement
from tests.support.doctored_machine import GIB, MEMORY, MOUNTS, MadeUpMachine


@pytest.fixture
def machine() -> MadeUpMachine:
    return MadeUpMachine()


def checked(checks: Iterator[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    # Whatever is not well has something to do about it.
    assert found.why
    assert found.level is Level.OK or found.change
    return found


def of_machine(machine: MadeUpMachine, name: str) -> Check:
    return checked(all_checks(machine, None), name)


def of_disk(machine: MadeUpMachine, name: str, path: str = "/data/logs") -> Check:
    return checked(disk_checks(machine, path), name)


def mounted(machine: MadeUpMachine, options: str = "rw,noatime", kind: str = "ext4", inner: str = "rw") -> None:
    machine.files["/proc/self/mountinfo"] = f"{MOUNTS}41 22 8:32 / /data {options} - {kind} /dev/sdc {inner}\n"


def test_a_healthy_machine(machine: MadeUpMachine) -> None:
    a_machine: Machine = machine
    checks = [*all_checks(a_machine, None), *disk_checks(a_machine, "/data/logs")]
    assert {check.level for check in checks} == {Level.OK}
    assert len({check.name for check in checks}) == len(checks) >= 18


def test_nothing_can_be_read(machine: MadeUpMachine) -> None:
    machine.files = {}
    machine.open_files = None
    machine.room = None
    machine.syncs = None
    checks = [*all_checks(machine, None), *disk_checks(machine, "/data/logs")]
    assert {check.level for check in checks} == {Level.OK}
    assert {check.name for check in checks}.isdisjoint({"swap", "dirty pages", "file system", "space"})
    (sync,) = [check for check in checks if check.name == "fsync"]
    assert "not measured" in sync.found


def test_files_that_say_nonsense(machine: MadeUpMachine) -> None:
    machine.files = dict.fromkeys(machine.files, "what? \x00 - - -\n: : 7 kB\n")
    checks = [*all_checks(machine, None), *disk_checks(machine, "/data/logs")]
    assert {check.level for check in checks} == {Level.OK}


@pytest.mark.parametrize(
    "python",
    [
        Python("CPython", (3, 10, 14), 64, "p"),
        Python("CPython", (3, 12, 0), 32, "p"),
        Python("PyPy", (3, 11, 0), 64, "p"),
    ],
)
def test_a_python_that_will_not_do(machine: MadeUpMachine, python: Python) -> None:
    machine.python = python
    assert of_machine(machine, "python").level is Level.FAIL


def test_requirements() -> None:
    spark = parse_requirement("pyspark<4.4,>=4.3; extra == 'spark'")
    assert spark is not None
    assert (spark.name, spark.extra) == ("pyspark", "spark")
    fits = {version: spark.allows(version) for version in ("4.2.9", "4.3", "4.3.0", "4.3.11", "4.4", "4.4.0", "10.0")}
    assert fits == {
        "4.2.9": False,
        "4.3": True,
        "4.3.0": True,
        "4.3.11": True,
        "4.4": False,
        "4.4.0": False,
        "10.0": False,
    }
    with_extras = parse_requirement("pyiceberg[pyarrow,sql-sqlite]>=0.12")
    assert with_extras is not None
    assert (with_extras.name, with_extras.extra) == ("pyiceberg", None)
    assert with_extras.allows("0.12.0")
    assert not with_extras.allows("0.9.1")
    compatible = parse_requirement("x~=1.4.2")
    assert compatible is not None
    assert compatible.allows("1.4.9")
    assert not compatible.allows("1.5.0")
    plain = parse_requirement("crc32c>=2.7")
    assert plain is not None
    assert plain.allows("2.9.post0")


def test_packages(machine: MadeUpMachine) -> None:
    machine.packages["numba"] = "0.61.2"
    check = of_machine(machine, "packages")
    assert check.level is Level.FAIL
    assert "numba is 0.61.2, it takes numba>=0.62" in check.found
    del machine.packages["numba"]
    assert "numba is missing" in of_machine(machine, "packages").found
    machine.needs = ()
    assert of_machine(machine, "packages").level is Level.WARN


def test_extras(machine: MadeUpMachine) -> None:
    absent = of_machine(machine, "duralog[kafka]")
    assert absent.level is Level.OK
    assert absent.change == "pip install --upgrade 'duralog[kafka]'"
    assert of_machine(machine, "duralog[broker]").found == "kio 0.6.5, xxhash 4.1.0"
    del machine.packages["xxhash"]
    half = of_machine(machine, "duralog[broker]")
    assert (half.level, half.found) == (Level.WARN, "xxhash is missing")
    machine.packages["confluent-kafka"] = "2.16.1"
    # Part of both.
    assert of_machine(machine, "duralog[kafka]").found == "confluent-kafka 2.16.1"
    assert of_machine(machine, "duralog[console]").level is Level.OK
    machine.packages["nicegui"] = "4.0.1"
    assert "nicegui is 4.0.1, it takes nicegui<4,>=3.18" in of_machine(machine, "duralog[console]").found


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ('openjdk version "17.0.13" 2024-10-15\n', Level.OK),
        ('openjdk version "21" 2023-09-19\n', Level.OK),
        ('java version "1.8.0_392"\n', Level.FAIL),
        ('openjdk version "11.0.2"\n', Level.FAIL),
        ("command not understood\n", Level.FAIL),
        (None, Level.FAIL),
    ],
)
def test_java(machine: MadeUpMachine, said: str | None, level: Level) -> None:
    machine.packages["pyspark"] = "4.3.0"
    machine.programs["java"] = "/usr/bin/java"
    if said is not None:
        machine.answers["/usr/bin/java", "-version"] = said
    assert of_machine(machine, "java").level is level


def test_java_home_goes_first(machine: MadeUpMachine) -> None:
    machine.packages["pyspark"] = "4.3.0"
    machine.environment = {"JAVA_HOME": "/opt/old", "HOME": "/home/me"}
    machine.programs["java"] = "/usr/bin/java"
    machine.answers["/usr/bin/java", "-version"] = 'openjdk version "21.0.1"'
    machine.answers["/opt/old/bin/java", "-version"] = 'openjdk version "11.0.1"'
    check = of_machine(machine, "java")
    assert check.level is Level.FAIL
    assert "JAVA_HOME is /opt/old" in check.found


def test_java_is_for_spark_only(machine: MadeUpMachine) -> None:
    assert of_machine(machine, "java").level is Level.OK
    machine.packages["pyspark"] = "4.3.0"
    assert "no java on the PATH" in of_machine(machine, "java").found


def test_the_python_of_spark_workers(machine: MadeUpMachine) -> None:
    machine.packages["pyspark"] = "4.3.0"
    assert of_machine(machine, "PYSPARK_PYTHON").level is Level.OK
    machine.environment = {"PYSPARK_PYTHON": "/opt/py", "HOME": "/home/me"}
    ask_version = ("/opt/py", "-c", "import sys; print(sys.version_info[:2])")
    assert "cannot be run" in of_machine(machine, "PYSPARK_PYTHON").found
    machine.answers[ask_version] = "(3, 12)\n"
    assert "is Python 3.12, this is 3.11" in of_machine(machine, "PYSPARK_PYTHON").found
    machine.answers[ask_version] = "(3, 11)\n"
    assert "has no duralog" in of_machine(machine, "PYSPARK_PYTHON").found
    machine.answers["/opt/py", "-c", "import duralog"] = ""
    assert of_machine(machine, "PYSPARK_PYTHON").level is Level.OK


def test_kernels(machine: MadeUpMachine) -> None:
    machine.compiled = KernelFacts("/home/me/.cache/duralog/kernels-1", 20, 4, False)
    assert of_machine(machine, "kernels").found == "4 of 24 kernels are not compiled yet"
    assert of_machine(machine, "kernels").change == "duralog doctor --compile"
    assert of_machine(machine, "cpu").level is Level.OK
    machine.environment = {"HOME": "/home/me", "NUMBA_CPU_NAME": "generic"}
    assert of_machine(machine, "cpu").level is Level.WARN
    machine.compiled = "No module named 'numba'"
    assert of_machine(machine, "kernels").level is Level.FAIL


def test_a_cache_that_is_not_kept(machine: MadeUpMachine) -> None:
    machine.compiled = KernelFacts("/tmp/duralog-0/kernels-1", 24, 0, True)
    assert "a temporary folder" in of_machine(machine, "kernel cache").found
    machine.environment = {"HOME": "/home/me", "DURALOG_CACHE_DIR": "/srv/cache"}
    assert "DURALOG_CACHE_DIR=/srv/cache cannot be used" in of_machine(machine, "kernel cache").found
    machine.compiled = KernelFacts("/srv/cache/kernels-1", 24, 0, True)
    assert of_machine(machine, "kernel cache").level is Level.OK


def test_swap(machine: MadeUpMachine) -> None:
    assert of_machine(machine, "swap").found == "there is none"
    machine.files["/proc/meminfo"] = MEMORY.replace("Total:             0", "Total:       4194304").replace(
        "Free:              0", "Free:        3145728"
    )
    check = of_machine(machine, "swap")
    assert (check.level, check.found) == (Level.WARN, "1 GiB of 4 GiB in use, vm.swappiness is 60")
    assert check.change.startswith("sysctl -w vm.swappiness=1;")
    machine.files["/proc/sys/vm/swappiness"] = "1\n"
    assert of_machine(machine, "swap").level is Level.OK


def test_dirty_pages_are_measured_against_memory(machine: MadeUpMachine) -> None:
    assert "write-back begins at 1.2 GiB (vm.dirty_background_ratio=10)" in of_machine(machine, "dirty pages").found
    machine.files["/proc/meminfo"] = MEMORY.replace("12582912", "125829120")
    late = of_machine(machine, "dirty pages")
    assert late.level is Level.WARN
    assert "vm.dirty_background_bytes=268435456" in late.change
    machine.files["/proc/sys/vm/dirty_background_bytes"] = "268435456\n"
    assert of_machine(machine, "dirty pages").level is Level.OK
    machine.files["/proc/sys/vm/dirty_bytes"] = "134217728\n"
    assert "no earlier than writers wait" in of_machine(machine, "dirty pages").found
    machine.files["/proc/sys/vm/dirty_bytes"] = "16777216\n"
    assert "very soon" in of_machine(machine, "dirty pages").found


def test_write_back(machine: MadeUpMachine) -> None:
    assert of_machine(machine, "write-back").level is Level.OK
    machine.files["/proc/sys/vm/dirty_expire_centisecs"] = "60000\n"
    assert of_machine(machine, "write-back").level is Level.WARN
    machine.files["/proc/sys/vm/dirty_writeback_centisecs"] = "0\n"
    assert "vm.dirty_writeback_centisecs=500" in of_machine(machine, "write-back").change


def test_memory(machine: MadeUpMachine) -> None:
    check = checked(memory_checks(machine, segments=0, log_bytes=20 * GIB), "memory")
    assert (check.level, "the logs have 20 GiB" in check.found) == (Level.OK, True)
    machine.files["/proc/meminfo"] = MEMORY.replace("12582912", "262144")
    assert of_machine(machine, "memory").level is Level.WARN


def test_the_limit_of_a_container(machine: MadeUpMachine) -> None:
    machine.files["/proc/self/cgroup"] = "0::/system.slice/duralog.service\n"
    machine.files["/sys/fs/cgroup/system.slice/memory.max"] = "268435456\n"
    machine.files["/sys/fs/cgroup/system.slice/memory.current"] = "1048576\n"
    machine.files["/sys/fs/cgroup/system.slice/duralog.service/memory.max"] = "max\n"
    check = of_machine(machine, "memory limit")
    assert check.level is Level.WARN
    assert check.found == "256 MiB, 1 MiB of it in use (/sys/fs/cgroup/system.slice/memory.max)"
    # The host's path, as a container sees it, and the limit at the root.
    machine.files["/proc/self/cgroup"] = "0::/../../kubepods/x\n"
    machine.files["/sys/fs/cgroup/memory.max"] = "2147483648\n"
    machine.files["/sys/fs/cgroup/memory.current"] = "2147483000\n"
    assert "page cache fills it" in of_machine(machine, "memory limit").found


def test_the_limit_of_an_old_container(machine: MadeUpMachine) -> None:
    machine.files["/proc/self/cgroup"] = "4:memory:/docker/1\n0::/\n"
    machine.files["/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert not [check for check in all_checks(machine, None) if check.name == "memory limit"]
    machine.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "134217728\n"
    assert of_machine(machine, "memory limit").level is Level.WARN


def test_maps_against_segments(machine: MadeUpMachine) -> None:
    few = checked(memory_checks(machine, segments=31_000, log_bytes=0), "vm.max_map_count")
    assert few.level is Level.OK
    many = checked(memory_checks(machine, segments=32_000, log_bytes=0), "vm.max_map_count")
    assert many.level is Level.FAIL
    assert "vm.max_map_count=262144" in many.change


@pytest.mark.parametrize(
    ("hard", "level"), [(None, Level.OK), (10_000, Level.OK), (4_000, Level.WARN), (300, Level.FAIL)]
)
def test_open_files(machine: MadeUpMachine, hard: int | None, level: Level) -> None:
    machine.open_files = hard
    check = checked(process_checks(machine, partitions=100, segments=1_000), "open files")
    assert check.level is level
    if level is not Level.OK:
        assert "LimitNOFILE=65536" in check.change


def test_the_mount_of_a_path() -> None:
    text = MOUNTS + "50 22 8:9 / /my\\040disk rw,noatime - ext4 /dev/sdd rw\n"
    found = {path: mount_of(text, path) for path in ("/data", "/data/logs", "/database", "/my disk/x", "/")}
    assert {path: mount.point for path, mount in found.items() if mount} == {
        "/data": "/data",
        "/data/logs": "/data",
        "/database": "/",
        "/my disk/x": "/my disk",
        "/": "/",
    }
    over = mount_of(MOUNTS + "60 22 0:9 / /data rw - tmpfs tmpfs rw\n", "/data/logs")
    assert over is not None
    assert over.kind == "tmpfs"
    assert mount_of("", "/data") is None


@pytest.mark.parametrize(
    ("kind", "level", "word"),
    [
        ("ext4", Level.OK, "ext4 on /data"),
        ("nfs4", Level.WARN, "network"),
        ("tmpfs", Level.WARN, "memory"),
        ("overlay", Level.WARN, "container"),
        ("btrfs", Level.WARN, "copies on write"),
        ("fuse.sshfs", Level.WARN, "network"),
        ("fuse.something", Level.WARN, "another process"),
    ],
)
def test_file_systems(machine: MadeUpMachine, kind: str, level: Level, word: str) -> None:
    mounted(machine, kind=kind)
    check = of_disk(machine, "file system")
    assert check.level is level
    assert word in check.found


@pytest.mark.parametrize(
    ("options", "inner", "level", "word"),
    [
        ("rw,noatime", "rw", Level.OK, "noatime"),
        ("rw,relatime", "rw,data=ordered", Level.OK, "relatime"),
        ("rw,relatime", "rw,data=writeback", Level.OK, "recovery detects"),
        ("rw", "rw", Level.WARN, "writes the time"),
        ("ro,noatime", "rw", Level.FAIL, "nothing can be appended"),
        ("rw,noatime", "rw,nobarrier", Level.WARN, "before the data is on disk"),
        ("rw,noatime", "rw,barrier=0", Level.WARN, "before the data is on disk"),
        ("rw,noatime,sync", "rw", Level.WARN, "waits for the disk"),
        ("rw,noatime", "rw,data=journal", Level.WARN, "written twice"),
    ],
)
def test_mount_options(machine: MadeUpMachine, options: str, inner: str, level: Level, word: str) -> None:
    mounted(machine, options, inner=inner)
    check = of_disk(machine, "mount options")
    assert check.level is level
    assert word in check.found


@pytest.mark.parametrize(
    ("usable", "level"),
    [(60 * GIB, Level.OK), (9 * GIB, Level.WARN), (500 << 20, Level.WARN), (50 << 20, Level.FAIL)],
)
def test_space(machine: MadeUpMachine, usable: int, level: Level) -> None:
    machine.room = Space(100 * GIB, usable, 0, 0)
    assert of_disk(machine, "space").level is level
    assert not [check for check in disk_checks(machine, "/data") if check.name == "inodes"]


@pytest.mark.parametrize(("free", "level"), [(50_000, Level.OK), (5_000, Level.WARN), (3, Level.FAIL)])
def test_inodes(machine: MadeUpMachine, free: int, level: Level) -> None:
    machine.room = Space(100 * GIB, 60 * GIB, 100_000, free)
    assert of_disk(machine, "inodes").level is level


def test_fsync(machine: MadeUpMachine) -> None:
    assert of_disk(machine, "fsync").found == "2.5 ms for 4 KiB, 3.0 ms at most, of 3"
    machine.syncs = (2e-6, 3e-6, 1e-3)
    assert "too fast to be true" in of_disk(machine, "fsync").found
    mounted(machine, kind="tmpfs")
    assert of_disk(machine, "fsync").level is Level.OK
    machine.syncs = (0.2, 0.1, 0.3)
    assert of_disk(machine, "fsync").level is Level.WARN
    machine.writable = False
    assert "not measured" in of_disk(machine, "fsync").found
