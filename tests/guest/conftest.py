"""The tests of IPVS need a kernel that has it: where the running one has not, `guest.py` boots one that has."""

from tests.guest.guest import has_ipvs

collect_ignore_glob = [] if has_ipvs() else ["test_ipvs_*.py"]
