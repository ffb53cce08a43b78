"""The proxy of a node of a cluster on this machine, as doctor has to name it: which process it is, and how it fares."""

from clusterip.diagnosis.doctor.proxies import OURS, Proxy, Trouble
from clusterip.lab.state import ComponentStatus
from clusterip.model.status import Object

FROZEN = "the rules are as its last sync left them, and what changed since is not in the kernel"

AT_ONCE = "it is started again at once"
NEVER = "nothing starts it again, for the supervisor of the cluster is dead"


def proxy_of_node(cluster: str, node: str) -> Proxy:
    """Asks the supervisor's record and the proxy itself. Raises Unavailable if there is no such cluster."""
    import asyncio

    from clusterip.lab.processes import alive
    from clusterip.lab.proxies import proxy_status
    from clusterip.lab.state import existing

    state, plan = existing(cluster)
    called = f"proxy of {node}"
    logs = f"tail -n 50 {state.log_of(called)}"
    component = state.component(called)
    supervision = state.supervision()
    supervised = supervision is not None and alive(supervision.supervisor)
    if component is not None and component.process is not None and alive(component.process):
        again = AT_ONCE if supervised else NEVER
        return living((called, component.process.pid), logs, asyncio.run(proxy_status(plan, node)), again)
    if supervised:
        return dead(called, component, logs, "it is started again, later and later")
    return dead(called, component, f"clusterip up --name {cluster}   # begins anew, without its data", NEVER)


def dead(called: str, component: ComponentStatus | None, command: str, why: str) -> Proxy:
    end = f" ({component.last_end})" if component and component.last_end else ""
    restarts = component.restarts if component else 0
    told = f"the supervisor's record: {called} is dead{end}, restarts: {restarts}"
    trouble = Trouble("proxy-not-running", f"The {called} is dead{end}: {FROZEN}; {why}.", told)
    return Proxy(OURS.name, command, command, command, trouble=trouble)


def living(process: tuple[str, int], logs: str, said: tuple[Object, str], again: str = AT_ONCE) -> Proxy:
    """`process`: its name and pid. `said`: its /status, or why it says nothing. `again`: what follows if it ends."""
    (called, pid), (status, silent) = process, said
    command, trouble = f"kill {pid}", None
    if silent:
        command = f"kill -9 {pid}"  # who does not answer may not hear a milder word either
        message = f"The {called} runs (pid {pid}) and cannot be asked ({silent}): {FROZEN}."
        trouble = Trouble("proxy-not-running", message, f"/status of {called}: {silent}")
    elif failed := str(status.get("lastError") or ""):
        message = f"The kernel has refused the last sync of the {called}; it tries again. Until then {FROZEN}."
        trouble = Trouble("sync-failing", message, f"/status of {called}: {failed}")
    cleans = f"{command}   # the {called}; when it is started again it takes away what other modes left"
    return Proxy(OURS.name, command, logs, cleans, f"the {called}; {again}", trouble)
