"""A guest in QEMU without KVM, with the kernel that Debian ships. Any machine can run it, at a fortieth of its speed.

With `count` the guest's clock counts the instructions it has run, one a nanosecond, and the time it had nothing to do:
what a benchmark measures repeats, whatever else this machine does. It takes several times as long.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.guest.common import CACHE, FAILED, TOOLS, fetched, install, second

PACKAGES = ("qemu-system-x86", "qemu-system-common", *TOOLS)
KERNEL = "linux-image-cloud-amd64"  # depends on the package that holds the kernel
NEEDED_AT_BOOT = ("virtio_pci", "virtiofs", "overlay")
LOADED = ("ip_vs", "ip_vs_rr", "dummy", "veth", "bridge", "br_netfilter", "nf_conntrack_netlink")

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

PREPARE = """mkdir -p /lib/modules
mount --bind {modules} /lib/modules
for module in {loaded}; do modprobe -q $module; done"""


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
        subprocess.run(("dpkg-deb", "-x", fetched(package, directory), root), check=True)
    subprocess.run(("depmod", "-b", root, modules_of(root).name), check=True)
    (root / "ready").touch()
    return root


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


def first_root(kernel: Path, script: Path) -> bytes:
    modules = in_order(kernel, NEEDED_AT_BOOT)
    directories = ("bin", "dev", "proc", "below", "above", "whole", "modules")
    return archive(
        [
            *((name, 0o040755, b"") for name in directories),
            ("bin/busybox", 0o100755, Path("/usr/bin/busybox").read_bytes()),
            ("init", 0o100755, FIRST.format(second=script).encode()),
            ("modules/order", 0o100644, "\n".join(module.name for module in modules).encode()),
            *((f"modules/{module.name}", 0o100644, module.read_bytes()) for module in modules),
        ]
    )


def run(command: Sequence[str], *, timeout: float, memory: int, count: bool) -> int:
    """The command's exit status; FAILED: there is none. `timeout`: seconds; `memory`: MB."""
    install(PACKAGES)
    kernel = unpacked_kernel()
    with tempfile.TemporaryDirectory(prefix="guest-") as directory:
        work = Path(directory)
        machine = arguments(kernel, work, memory, count=count)
        prepare = PREPARE.format(modules=kernel.resolve() / "lib/modules", loaded=" ".join(LOADED))
        script = work / "second"
        script.write_text(second(command, prepare=prepare, terminal="/dev/ttyS1", status="/dev/ttyS2"))
        (work / "initrd").write_bytes(first_root(kernel, script))
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
    # Where instructions are counted there can be one processor; else each of ours runs one.
    clock = ("-accel", "tcg", "-icount", "shift=0") if count else ("-accel", "tcg,thread=multi")
    return [
        *("qemu-system-x86_64", *clock, "-cpu", "max", "-smp", "1" if count else "2", "-m", f"{memory}M"),
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
