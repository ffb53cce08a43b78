"""A dump of 10,000 Services x 10 backends: time to read it and answer, time of each further question, peak memory.

usage: trace.py [SERVICES]      each layout is measured in a process of its own
"""

import gc
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import large
from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.trace import Tracer
from clusterip.rulesets import recognise

QUESTIONS = 200


def measure(file: Path, services: int) -> None:
    gc.freeze()
    started = time.perf_counter()
    facts = merge([recognise.read(file.name, file.read_bytes())], large.NODE)
    tracer = Tracer(facts)
    answer = tracer.ask("pod:10.131.255.250", "10.96.0.5:80/tcp")
    first = time.perf_counter() - started
    assert (answer.verdict, len(answer.outcomes)) == ("delivered", large.BACKENDS)
    times = []
    for number in range(QUESTIONS):
        place = large.table(1)[0].cluster_ip if number == 0 else _place(number * 7919 % services)
        before = time.perf_counter()
        assert tracer.ask("outside:203.0.113.9", f"{place}:80/tcp").verdict == "delivered"
        times.append(time.perf_counter() - before)
    times.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {file.name:18} {sum(i.facts for i in facts.inputs):7} rules   first answer {first:5.2f} s"
        f"   further: median {times[QUESTIONS // 2] * 1000:5.2f} ms, worst {times[-1] * 1000:5.2f} ms"
        f"   peak {peak:5.0f} MiB",
        flush=True,
    )


def _place(number: int) -> str:
    return f"10.96.{number >> 8 & 255}.{number & 255}"


def main() -> None:
    if len(sys.argv) == 3:
        measure(Path(sys.argv[1]), int(sys.argv[2]))
        return
    services = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"trace, {services} Services x {large.BACKENDS} backends:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        large.write(Path(folder), services)
        for name in large.LAYOUTS.values():
            subprocess.run([sys.executable, __file__, str(Path(folder) / name), str(services)], check=True)


if __name__ == "__main__":
    main()
