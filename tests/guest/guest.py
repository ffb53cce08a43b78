#!/usr/bin/env python3
"""Run a command as root in a small guest that has Debian's kernel, and IPVS with it.

    tests/guest/guest.py -- .venv/bin/python -m pytest -m kernel tests/guest
    tests/guest/guest.py --unless-here -- ...      (in place, if the running kernel has IPVS)

The guest (QEMU without KVM, one processor) sees this machine's files at the same paths, through an overlay whose writes
stay in its memory. The command runs in the directory we are in; its output and exit status are ours. 125: the guest
did not end as it should. Nothing is installed on this machine but the Debian packages that are missing; the kernel is
unpacked into a cache, never into /boot.

With --count-instructions the guest's clock counts those it has run, one a nanosecond, and the time it had nothing to
do: what a benchmark measures repeats, whatever else this machine does. It takes several times as long.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterip.errors import Unavailable
from clusterip.kernel.ipvs import IPVS

CACHE = Path(os.environ.get("CLUSTERIP_GUEST_CACHE", "/var/cache/clusterip-guest"))
PACKAGES = (
    "qemu-system-x86",
    "qemu-system-common",
    "busybox-static",
    "kmod",
    "ipset",
    "ipvsadm",
    "iptables",
    "iproute2",
)
KERNEL = "linux-image-cloud-amd64"  # depends on the package that holds the kernel
NEEDED_AT_BOOT = ("virtio_pci", "virtiofs", "overlay")
LOADED = ("ip_vs", "ip_vs_rr", "dummy", "veth", "bridge", "br_netfilter", "nf_conntrack_netlink")
FAILED = 125

# The first process: load what the root needs, lay a writable layer over it, go on there.
FIRST = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module || echo "guest: insmod $module failed"; done
mount -t virtiofs -o ro root /below || poweroff -f
mount -t tmpfs -o size=50% above /above
mkdir /above/upper /above/work
mount -t overlay -o lowerdir=/below,upperdir=/above/upper,workdir=/above/work overlay /whole || poweroff -f
mount --move /dev /whole/dev
umount /proc
exec switch_root /whole /bin/bash {second}
"""

# The second, on the root that looks like this machine's. ttyS1 takes the output, ttyS2 the exit status.
SECOND = """#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm /lib/modules /run/netns
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount --bind {modules} /lib/modules
stty -F /dev/ttyS1 raw -echo
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
for module in {loaded}; do modprobe -q $module; done
cd {directory}
{command} </dev/null >/dev/ttyS1 2>&1
echo $? >/dev/ttyS2
exec busybox poweroff -f
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="run a command in a guest that has IPVS")
    parser.add_argument("--unless-here", action="store_true", help="in place if the running kernel has IPVS")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds")
    parser.add_argument("--count-instructions", action="store_true", help="as the guest's time; for benchmarks")
    parser.add_argument("--memory", type=int, default=1536, help="MB")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    if given.unless_here and has_ipvs():
        return subprocess.run(given.command, check=False).returncode
    install()
    kernel = unpacked_kernel()
    compiled()
    with tempfile.TemporaryDirectory(prefix="guest-") as directory:
        machine = arguments(kernel, Path(directory), given.memory, count=given.count_instructions)
        return boot(kernel, Path(directory), given.command, machine, timeout=given.timeout)


def has_ipvs() -> bool:
    """Of the running kernel, which loads the module itself if it has it as one."""
    try:
        with IPVS():
            return True
    except Unavailable:
        return False


def install() -> None:
    asked = ("dpkg-query", "-Wf${Package} ${db:Status-Status}\n", *PACKAGES)
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    missing = [name for name in PACKAGES if f"{name} installed" not in said]
    if missing:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)
        for argv in (("apt-get", "update", "-qq"), apt):
            subprocess.run(argv, env=environment, check=True, stdout=sys.stderr)


def unpacked_kernel() -> Path:
    """The directory with boot/vmlinuz-* and lib/modules/*, fetched once."""
    root = CACHE / "kernel"
    if (root / "ready").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    told = subprocess.run(("apt-cache", "depends", KERNEL), capture_output=True, text=True, check=True).stdout
    package = told.split("Depends: ", 1)[1].split()[0]
    with tempfile.TemporaryDirectory() as directory:
        fetch = ("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package)
        subprocess.run(fetch, cwd=directory, check=True, stdout=sys.stderr)
        (archive,) = Path(directory).glob("*.deb")
        subprocess.run(("dpkg-deb", "-x", archive, root), check=True)
    subprocess.run(("depmod", "-b", root, modules_of(root).name), check=True)
    (root / "ready").touch()
    return root


def compiled() -> None:
    """Writes the byte code that is missing: in the guest every process would compile anew."""
    folders = [folder for folder in ("src", "tests") if Path(folder).is_dir()]
    subprocess.run((sys.executable, "-m", "compileall", "-q", *folders), check=False)


def modules_of(root: Path) -> Path:
    (found,) = (root / "lib/modules").iterdir()
    return found


def in_order(root: Path, names: Sequence[str]) -> list[Path]:
    """The files of the modules that `names` need, each after those it needs itself. Source: modules.dep."""
    base = modules_of(root)
    needs = {}
    for line in (base / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    wanted = [by_name[name] for name in names if name in by_name]  # what is built in has no file
    ordered = [path for name in wanted for path in (*reversed(needs[name]), name)]
    return [base / path for path in dict.fromkeys(ordered)]


def archive(files: Sequence[tuple[str, int, bytes]]) -> bytes:
    """A cpio archive (newc) of name, mode and content: what a kernel unpacks as its first root."""
    out = bytearray()
    for inode, (name, mode, content) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        numbers = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + "".join(f"{number:08X}" for number in numbers).encode() + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def first_root(kernel: Path, second: Path) -> bytes:
    modules = in_order(kernel, NEEDED_AT_BOOT)
    directories = ("bin", "dev", "proc", "below", "above", "whole", "modules")
    return archive(
        [
            *((name, 0o040755, b"") for name in directories),
            ("bin/busybox", 0o100755, Path("/usr/bin/busybox").read_bytes()),
            ("init", 0o100755, FIRST.format(second=second).encode()),
            ("modules/order", 0o100644, "\n".join(module.name for module in modules).encode()),
            *((f"modules/{module.name}", 0o100644, module.read_bytes()) for module in modules),
        ]
    )


def boot(kernel: Path, work: Path, command: Sequence[str], machine: Sequence[str], *, timeout: float) -> int:
    second = work / "second"
    second.write_text(
        SECOND.format(
            modules=kernel.resolve() / "lib/modules",
            loaded=" ".join(LOADED),
            directory=shlex.quote(os.getcwd()),
            command=shlex.join(command),
        )
    )
    (work / "initrd").write_bytes(first_root(kernel, second))
    started = time.monotonic()
    with file_server(work):
        # Its serial line is our standard output: what the command prints appears as it is printed.
        guest = subprocess.Popen(machine, stdin=subprocess.DEVNULL)
        try:
            guest.wait(timeout)
            status = int((work / "status").read_text().strip())
        except (subprocess.TimeoutExpired, ValueError):
            status = FAILED
        finally:
            guest.kill()
            guest.wait()
    if status == FAILED:
        sys.stderr.write((work / "console").read_text(errors="replace")[-3000:])
        sys.stderr.write(f"guest: no exit status within {timeout:g} s\n")
    sys.stderr.write(f"guest: {time.monotonic() - started:.0f} s, exit status {status}\n")
    return status


@contextlib.contextmanager
def file_server(work: Path) -> Iterator[None]:
    """Serves this machine's root to the guest, which mounts it read-only."""
    places = (Path("/usr/lib/qemu/virtiofsd"), Path("/usr/libexec/virtiofsd"))
    program = next((path for path in places if path.exists()), Path("virtiofsd"))
    options = (f"--socket-path={work}/files", "-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot")
    with (work / "files.log").open("w") as log:
        server = subprocess.Popen((program, *options), stdout=log, stderr=log)
    try:
        ends = time.monotonic() + 10
        while not (work / "files").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()


def arguments(kernel: Path, work: Path, memory: int, *, count: bool) -> list[str]:
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    clock = ("-accel", "tcg", "-icount", "shift=0") if count else ("-accel", "tcg,thread=multi")
    return [
        *("qemu-system-x86_64", *clock, "-cpu", "max", "-smp", "1", "-m", f"{memory}M"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on", "-numa", "node,memdev=memory"),
        *("-chardev", f"socket,id=files,path={work}/files"),
        *("-device", "vhost-user-fs-pci,chardev=files,tag=root,queue-size=1024"),
        *("-kernel", str(image), "-initrd", f"{work}/initrd"),
        *("-append", "console=ttyS0 quiet panic=-1 mitigations=off"),
        *("-serial", f"file:{work}/console"),
        *("-chardev", "stdio,id=output,signal=off", "-serial", "chardev:output"),
        *("-serial", f"file:{work}/status"),
    ]


if __name__ == "__main__":
    sys.exit(main())
