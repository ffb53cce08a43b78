"""What people take for a fault when nothing is broken. Pure."""

from collections.abc import Iterator, Sequence

from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.programmed import Programmed, share_list
from clusterip.diagnosis.findings import Finding


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    if known.conntrack:
        return  # it would show who pings: `tracking` tells that
    served = [p for p in programs if p.frontend.address and any(p.shares.values())]
    if not served:
        return
    p = served[0]
    message = f"A ping of {p.frontend.address} has no answer and proves nothing: a Service is translated for its own "
    message += f"protocols and ports alone. {p.frontend} goes to {share_list(p.shares)}. This is not a fault."
    udp = "u" if p.frontend.protocol == "udp" else ""
    remedy = f"nc -vz{udp} {p.frontend.address} {p.frontend.port}   # test with the Service's protocol"
    yield Finding("not-a-service-protocol", "I", p.object, message, (p.place,), None, remedy)
