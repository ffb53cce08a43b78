"""The tests of IPVS need a kernel that has it: where the running one has not, `guest.py` boots one that has."""

from clusterip.errors import Unavailable
from clusterip.kernel.ipvs import IPVS


def _has_ipvs() -> bool:
    try:
        with IPVS():
            return True
    except Unavailable:
        return False


collect_ignore_glob = [] if _has_ipvs() else ["test_ipvs_*.py"]
