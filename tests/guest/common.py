"""What every guest has in common: its second process, what is installed for it, where things are kept."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("CLUSTERIP_GUEST_CACHE", "/var/cache/clusterip-guest"))
FAILED = 125
TOOLS = ("busybox-static", "kmod", "ipset", "ipvsadm", "iptables", "iproute2")

# The first process of the root that looks like this machine's. How many refusals the kernel sends is limited for all
# namespaces together (each has a limit of its own since 6.13): tests that ask for many would see some silence.
SECOND = """#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs run /run
{prepare}
mkdir -p /dev/pts /dev/shm /run/netns
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
stty -F {terminal} raw -echo
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
for limit in msgs_per_sec msgs_burst; do echo 1000000 >/proc/sys/net/ipv4/icmp_$limit; done
cd {directory}
{environment}{command} </dev/null >{terminal} 2>&1
echo $? >{status}
exec busybox poweroff -f
"""


def second(command: Sequence[str], *, prepare: str, terminal: str, status: str) -> str:
    """`terminal` takes the output, `status` the exit status; `prepare`: lines of the shell. Names that begin with
    CLUSTERIP_ keep their values in there."""
    given = {name: value for name, value in os.environ.items() if name.startswith("CLUSTERIP_")}
    return SECOND.format(
        prepare=prepare,
        terminal=terminal,
        status=status,
        directory=shlex.quote(os.getcwd()),
        environment="".join(f"{name}={shlex.quote(value)} " for name, value in given.items()),
        command=shlex.join(command),
    )


def install(packages: Sequence[str]) -> None:
    """Those of Debian's that are missing."""
    asked = ("dpkg-query", "-Wf${Package} ${db:Status-Status}\n", *packages)
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    missing = [name for name in packages if f"{name} installed" not in said]
    if missing:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)
        for argv in (("apt-get", "update", "-qq"), apt):
            subprocess.run(argv, env=environment, check=True, stdout=sys.stderr)


def fetched(package: str, directory: str) -> Path:
    """A package's file, which is not installed."""
    fetch = ("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package)
    subprocess.run(fetch, cwd=directory, check=True, stdout=sys.stderr)
    (archive,) = Path(directory).glob("*.deb")
    return archive


def compiled() -> None:
    """Writes the byte code that is missing: in the guest every process would compile anew."""
    folders = [folder for folder in ("src", "tests") if Path(folder).is_dir()]
    subprocess.run((sys.executable, "-m", "compileall", "-q", *folders), check=False)
