"""A guest that is a process of this machine: a user-mode kernel, built from Debian's source of the same version as the
one that QEMU runs. A quarter of this machine's speed, so it can run whole clusters; to build it takes ten minutes.

Source: Documentation/virt/uml/user_mode_linux_howto_v2.rst of the kernel.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.guest.common import CACHE, FAILED, TOOLS, fetched, install, second

HERE = Path(__file__).parent
PACKAGES = ("gcc", "libc6-dev", "make", "flex", "bison", "bc", "xz-utils", "nftables", *TOOLS)
SOURCE = "linux-source-6.1"
CONFIG, STATE = HERE / "user_mode.config", HERE / "fpstate.c"

# The first process, on this machine's files: lay a writable layer over them, go on there. The layer has to be the root
# of the mount namespace, not of the process alone: who enters another such namespace gets the root of that one.
FIRST = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t tmpfs -o size=50% above /mnt
mkdir /mnt/upper /mnt/work /mnt/whole
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/whole || busybox poweroff -f
umount /proc
cd /mnt/whole
pivot_root . mnt
exec chroot . /bin/bash {script}
"""
PREPARE = """umount -l /mnt
mount -t devtmpfs dev /dev
mount -t hostfs -o {work} hostfs {work}"""


def run(command: Sequence[str], *, timeout: float, memory: int) -> int:
    """The command's exit status; FAILED: there is none. `timeout`: seconds; `memory`: MB."""
    install(PACKAGES)
    program, state = built()
    with tempfile.TemporaryDirectory(prefix="guest-") as directory:
        work = Path(directory)
        script, first, status = work / "second", work / "first", work / "status"
        script.write_text(second(command, prepare=PREPARE.format(work=work), terminal="/dev/tty1", status=str(status)))
        first.write_text(FIRST.format(script=script))
        first.chmod(0o755)
        (work / "uml").mkdir()
        environment = {**os.environ, "LD_PRELOAD": str(state), "TMPDIR": folder_for(memory << 20)}
        started = time.monotonic()
        with (work / "errors").open("w") as errors:
            # In a session of its own: each process of the guest is one of this machine's, too.
            guest = subprocess.Popen(
                arguments(program, work, memory),
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
            try:
                guest.wait(timeout)
            except subprocess.TimeoutExpired:
                sys.stderr.write(f"guest: no exit status within {timeout:g} s\n")
            finally:
                if guest.poll() is None:
                    os.killpg(guest.pid, signal.SIGKILL)
                    guest.wait()
        said = status.read_text().strip() if status.exists() else ""
        if not said:
            sys.stderr.write((work / "errors").read_text(errors="replace")[-3000:])
        sys.stderr.write(f"guest: {time.monotonic() - started:.0f} s, exit status {said or FAILED}\n")
        return int(said) if said else FAILED


def arguments(program: Path, work: Path, memory: int) -> list[str]:
    return [
        *(str(program), f"mem={memory}M", "root=none", "rootfstype=hostfs", "ro", "quiet", f"init={work}/first"),
        *(f"uml_dir={work}/uml", "con0=null,fd:2", "con1=null,fd:1", "con=null", "ssl=null"),
    ]


def folder_for(size: int) -> str:
    """Where the guest's memory is a file of so many bytes: in this machine's memory, if there is room."""
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.is_dir() else 0
    return str(shared) if free > size else tempfile.gettempdir()


def built() -> tuple[Path, Path]:
    """The kernel, and what is loaded before it; built once for each configuration."""
    wanted = hashlib.sha256(CONFIG.read_bytes() + STATE.read_bytes()).hexdigest()[:12]
    root = CACHE / f"user-mode-{wanted}"
    program, state = root / "linux", root / "fpstate.so"
    if (root / "ready").exists():
        return program, state
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    subprocess.run(("gcc", "-O2", "-shared", "-fPIC", "-o", state, STATE), check=True)
    with tempfile.TemporaryDirectory(prefix="linux-", dir=CACHE) as directory:
        build(Path(directory), program)
    (root / "ready").touch()
    return program, state


def build(folder: Path, program: Path) -> None:
    sys.stderr.write(f"guest: building a user-mode kernel from {SOURCE}, once; this takes about ten minutes\n")
    subprocess.run(("dpkg-deb", "-x", fetched(SOURCE, str(folder)), folder), check=True)
    unpack = ("tar", "-xJf", folder / f"usr/src/{SOURCE}.tar.xz", "--exclude=*/drivers/gpu/drm/amd/include")
    subprocess.run(unpack, cwd=folder, check=True)
    tree = folder / SOURCE
    make = ("make", "-s", "ARCH=um", f"-j{os.cpu_count() or 1}")
    for argv in (
        (*make, "allnoconfig"),
        ("scripts/kconfig/merge_config.sh", "-m", ".config", str(CONFIG)),
        (*make, "olddefconfig"),
        (*make, "KCFLAGS=-O1", "linux"),  # a fifth of the time to build it is spared, and it is fast enough
    ):
        subprocess.run(argv, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    shutil.copy2(tree / "linux", program)
