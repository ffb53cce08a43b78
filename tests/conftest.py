"""What every test shares: Hypothesis profiles, and the rule that kernel tests fail where they cannot run."""

import gc
import os
import shutil
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# Deadlines are off: these machines are noisy, and time is measured in benchmarks/, not here.
# CLUSTERIP_EXAMPLES says how many examples a property test draws: `make check` asks for few, `make test` for many.
EXAMPLES = {"few": 12, "some": 50, "many": 200}
settings.register_profile(
    "some", max_examples=EXAMPLES["some"], deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
for _name in ("few", "many"):
    settings.register_profile(_name, parent=settings.get_profile("some"), max_examples=EXAMPLES[_name])
settings.load_profile(os.environ.get("CLUSTERIP_EXAMPLES", "some"))

NEEDED = ("ip", "iptables", "iptables-legacy", "conntrack", "nsenter", "unshare")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests live as long as the run does: looking for garbage among them took half of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("kernel") or item.get_closest_marker("e2e"):
        missing = [program for program in NEEDED if shutil.which(program) is None]
        if os.geteuid() != 0 or missing:
            pytest.fail(f"needs root and {', '.join(missing) or 'nothing else'}: run `make test`", pytrace=False)
