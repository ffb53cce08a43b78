"""The rules of 10,000 Services x 10 backends against the objects of the API: time of each part, peak memory.

usage: verify.py [SERVICES]      each layout is measured in a process of its own
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
from clusterip.diagnosis.verify.premises import Premises, premises
from clusterip.diagnosis.verify.verify import verify
from clusterip.rulesets import recognise


def measure(folder: Path, rules: str) -> None:
    gc.disable()  # as the command does
    started = time.perf_counter()
    cpu = time.process_time()
    read = [recognise.read(name, (folder / name).read_bytes()) for name in (rules, "objects.json")]
    facts = merge(read, large.NODE)
    loaded = time.perf_counter()
    found = verify(facts, premises(facts, Premises(node=large.NODE, addresses=(large.NODE_IP,))))
    ended = time.perf_counter()
    assert found.verdict == "equal", (found.differences[:3], found.unproven[:3])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {rules:18} {found.frontends:6} frontends equal   read {loaded - started:5.2f} s"
        f"   verified {ended - loaded:5.2f} s   CPU in all {time.process_time() - cpu:5.2f} s   peak {peak:5.0f} MiB",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) == 3:
        measure(Path(sys.argv[1]), sys.argv[2])
        return
    services = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"verify, {services} Services x {large.BACKENDS} backends:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        large.write(Path(folder), services)
        for name in large.LAYOUTS.values():
            subprocess.run([sys.executable, __file__, folder, name], check=True)


if __name__ == "__main__":
    main()
