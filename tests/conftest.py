"""What every test shares: Hypothesis profiles, and the rule that kernel tests fail where they cannot run."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

# Deadlines are off: these machines are noisy, and time is measured in benchmarks/, not here.
settings.register_profile(
    "dev", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", parent=settings.get_profile("dev"), max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

NEEDED = ("ip", "iptables", "iptables-legacy", "conntrack", "nsenter", "unshare")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("kernel") or item.get_closest_marker("e2e"):
        missing = [program for program in NEEDED if shutil.which(program) is None]
        if os.geteuid() != 0 or missing:
            pytest.fail(f"needs root and {', '.join(missing) or 'nothing else'}: run `make test`", pytrace=False)
