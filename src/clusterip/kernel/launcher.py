"""Forks the processes of pods. A program of its own, started by `kernel.processes` as `python -I -S launcher.py FD`.

It imports little and does nothing else, so a fork of it takes about a millisecond; a fork of the node agent, with its
event loop, threads and libraries, would be neither quick nor safe. Standard library only.

Three generations, and why:

    launcher     has the host's namespaces; waits for all; tells how each ended
      init       PID 1 of a container's PID namespace: reaps orphans, passes SIGTERM on to the main process. When it
                 ends, by SIGKILL too, the kernel kills everything in the namespace: nothing escapes.
        main     what the container is for. Not PID 1, because PID 1 is deaf to SIGTERM unless it handles it.

When the node agent dies, its end of the socket closes and the launcher kills its children; when the launcher dies,
the kernel kills them (PR_SET_PDEATHSIG). So a `kill -9` of either leaves no process behind.

A request is one message on the socket, of a single byte, with five descriptors: the order as JSON (a memory file, since
an environment may be larger than a message), stdin, stdout, stderr, and a pipe for what there is to say, in lines:

    {"pid": 4711}              the child exists; the pid is the host's
    {"started": true}          its program runs (containers only)
    {"error": "..."}           it could not be started
    {"exit": 3}                it ended; 128 + n: by signal n

An order has: argv, env, cwd, tty (make stdin the controlling terminal); for a container: hostname, netns (a path, or ""
for ours), binds ([[file, over which file], ...]); for a process beside one: join, the pid of its init.
"""

from __future__ import annotations  # the types below exist for the checker alone: `typing` is slow to import

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Order(TypedDict, total=False):
        argv: list[str]
        env: dict[str, str]
        cwd: str
        tty: bool
        hostname: str
        netns: str
        binds: list[tuple[str, str]]
        join: int


# include/uapi/linux/{sched,mount,prctl}.h
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x04000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 19
PR_SET_PDEATHSIG = 1
DESCRIPTORS = 5

_libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    code = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    check(code, f"mount on {target}")


def setns(path: str, kind: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    check(_libc.setns(fd, kind), f"enter {path}")
    os.close(fd)


def say(fd: int, **words: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # who asked is not interested any more
        os.write(fd, json.dumps(words).encode() + b"\n")


def execute(order: Order, stdio: list[int]) -> None:
    """Become the order's program; returns never, raises OSError if that fails."""
    os.setsid()
    for number, fd in enumerate(stdio):
        os.dup2(fd, number)
    if order.get("tty"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    os.chdir(order["cwd"])
    os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606  this is what a pod asks for


def why(error: OSError | ValueError, order: Order) -> str:
    """As people know it from container runtimes. ValueError: a zero byte in an argument."""
    program, cwd = order["argv"][0], order["cwd"]
    if isinstance(error, OSError) and error.filename == cwd:
        return f'chdir to cwd ("{cwd}"): {error.strerror}'
    if isinstance(error, FileNotFoundError):
        return f'exec: "{program}": executable file not found in $PATH'
    return f'exec: "{program}": {(isinstance(error, OSError) and error.strerror) or error}'


def enter_container(order: Order) -> None:
    """Mounts, names and network of the container, for this process and its children."""
    check(_libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "unshare")
    # Slave: what the host mounts and unmounts is followed, what we mount is ours alone.
    mount("none", "/", "none", MS_REC | MS_SLAVE)
    for source, target in order["binds"]:
        mount(source, target, "none", MS_BIND)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if order["netns"]:
        setns(order["netns"], CLONE_NEWNET)
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)  # shows the links of the namespace we are in
    if order["hostname"]:
        socket.sethostname(order["hostname"])


def run_main(order: Order, stdio: list[int], report: int) -> int:
    """Fork the main process; its pid once its program runs. Raises OSError if it cannot."""
    reader, writer = os.pipe()  # closed by a successful exec
    main = os.fork()
    if main == 0:
        try:
            os.close(report)
            execute(order, stdio)
        except (OSError, ValueError) as error:
            os.write(writer, why(error, order).encode())
        os._exit(127)
    os.close(writer)
    trouble = b""
    while chunk := os.read(reader, 4096):
        trouble += chunk
    os.close(reader)
    if trouble:
        raise OSError(0, trouble.decode())
    return main


def be_init(order: Order, stdio: list[int], report: int) -> int:
    """The life of PID 1: exit status of the main process, 128 + n if signal n ended it."""
    try:
        enter_container(order)
        main = run_main(order, stdio, report)
    except OSError as error:
        say(report, error=error.strerror or str(error))
        return 128
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        signal.signal(number, lambda received, _frame: os.kill(main, received))
    say(report, started=True)  # from here on somebody may signal us
    os.close(report)
    for fd in stdio:
        os.close(fd)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == main:
            return shell_status(status)


def shell_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def be_neighbour(order: Order, stdio: list[int], report: int) -> int:
    """Become a process beside a container's; the PID namespace was joined before the fork."""
    try:
        execute(order, stdio)
    except (OSError, ValueError) as error:
        say(report, error=why(error, order))
        return 126 if isinstance(error, PermissionError) else 127
    return 0


class Launcher:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.reports: dict[int, int] = {}  # pid of a child -> where to say how it ended
        self.selector = selectors.DefaultSelector()
        self.wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wakeup[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.control, selectors.EVENT_READ)
        self.selector.register(self.wakeup[0], selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is not self.control:
                    os.read(self.wakeup[0], 4096)
                    self.reap()
                elif not self.obey():
                    return

    def obey(self) -> bool:
        """Carry out one order; False when the agent is gone."""
        message, fds, _, _ = socket.recv_fds(self.control, 16, DESCRIPTORS)
        if not message:
            return False
        with os.fdopen(fds[0], "rb") as file:
            order = json.load(file)
        stdio, report = fds[1:4], fds[4]
        try:
            pid = self.fork(order, stdio, report)
        except OSError as error:
            say(report, error=error.strerror or str(error))
            say(report, exit=128)
            os.close(report)
        else:
            self.reports[pid] = report
            say(report, pid=pid)
        for fd in stdio:
            os.close(fd)
        return True

    def fork(self, order: Order, stdio: list[int], report: int) -> int:
        """The child is born into its PID namespace: `unshare` and `setns` of one concern only children to come."""
        beside = order.get("join")
        if beside:
            # Opened before anything is entered: it must be the same process for all four.
            spaces = [(f"/proc/{beside}/ns/{name}", kind) for name, kind in JOINED]
            files = [(os.open(path, os.O_RDONLY | os.O_CLOEXEC), kind) for path, kind in spaces]
            check(_libc.setns(files[0][0], CLONE_NEWPID), "enter the container")
        else:
            check(_libc.unshare(CLONE_NEWPID), "unshare")
            files = []
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(self.child(order, stdio, report, files[1:]))
        finally:
            setns("/proc/self/ns/pid", CLONE_NEWPID)
            for fd, _ in files:
                os.close(fd)
        return pid

    def child(self, order: Order, stdio: list[int], report: int, spaces: list[tuple[int, int]]) -> int:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        self.control.close()
        self.selector.close()
        for fd in self.reports.values():
            os.close(fd)
        if not order.get("join"):
            return be_init(order, stdio, report)
        for fd, kind in spaces:
            check(_libc.setns(fd, kind), "enter the container")
        return be_neighbour(order, stdio, report)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            report = self.reports.pop(pid, None)
            if report is not None:
                say(report, exit=shell_status(status))
                os.close(report)

    def kill_all(self) -> None:
        for pid in self.reports:
            os.kill(pid, signal.SIGKILL)
        for pid in self.reports:
            os.waitpid(pid, 0)


JOINED = (("pid", CLONE_NEWPID), ("uts", CLONE_NEWUTS), ("net", CLONE_NEWNET), ("mnt", CLONE_NEWNS))


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the agent decides when we end: a terminal's Ctrl-C reaches both
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    launcher = Launcher(socket.socket(fileno=int(sys.argv[1])))
    try:
        launcher.serve()
    finally:
        launcher.kill_all()


if __name__ == "__main__":
    main()
