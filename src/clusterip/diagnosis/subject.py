"""What a finding about one question is of, and what it costs. Pure."""

from collections.abc import Sequence
from fractions import Fraction

from clusterip.diagnosis.outcomes import Reached, share
from clusterip.diagnosis.packet import socket
from clusterip.diagnosis.sentences import service
from clusterip.diagnosis.walked import Walked


def name(walked: Walked) -> str:
    """The Service asked for: "service default/web:http"; its address if its name is not known."""
    found = service(walked.packet, walked.frontends)
    return f"service {found}" if found else socket(walked.packet.destination, walked.packet.destination_port)


def cost(affected: Sequence[Reached]) -> Fraction | None:
    """None: it hangs on something unknown, or on what the client did before."""
    if any(condition.kind != "affinity" for r in affected for condition in r.branch.when):
        return None
    return share(affected, lambda r: True) or None
