"""Run a command as root in a small guest whose kernel has IPVS.

    python -m tests.guest.guest -- .venv/bin/python -m pytest -m kernel tests/guest
    python -m tests.guest.guest --unless-here -- ...      (in place, if the running kernel has IPVS)
    python -m tests.guest.guest --user-mode -- ...        (a kernel is built for it first; a quarter of our speed)

The guest sees this machine's files at the same paths, through an overlay whose writes stay in its memory. The command
runs in the directory we are in; its output and exit status are ours. 125: the guest did not end as it should. Nothing
is installed on this machine but the Debian packages that are missing; kernels are kept in a cache, never in /boot.
"""

import argparse
import signal
import subprocess
import sys

from tests.guest import emulated, user_mode
from tests.guest.common import compiled

from clusterip.errors import Unavailable
from clusterip.kernel.ipvs import IPVS


def main() -> int:
    parser = argparse.ArgumentParser(description="run a command in a guest that has IPVS")
    parser.add_argument("--unless-here", action="store_true", help="in place if the running kernel has IPVS")
    parser.add_argument("--user-mode", action="store_true", help="in a user-mode kernel, which is built the first time")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds")
    parser.add_argument("--count-instructions", action="store_true", help="as the guest's time; for benchmarks")
    parser.add_argument("--memory", type=int, default=1536, help="MB")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    if given.unless_here and has_ipvs():
        return subprocess.run(given.command, check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the guest ends as well
    compiled()
    if given.user_mode:
        return user_mode.run(given.command, timeout=given.timeout, memory=given.memory)
    count = given.count_instructions
    return emulated.run(given.command, timeout=given.timeout, memory=given.memory, count=count)


def has_ipvs() -> bool:
    """Of the running kernel, which loads the module itself if it has it as one."""
    try:
        with IPVS():
            return True
    except Unavailable:
        return False


if __name__ == "__main__":
    sys.exit(main())
