"""Coverage-guided fuzzing of the parsers, for as long as one likes; not part of the tests.

    pip install atheris
    python scripts/fuzz.py -max_total_time=600 CORPUS...

A finding is an exception (parsers answer with values and problems) or an input that takes more than ten seconds.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["clusterip.rulesets", "clusterip.model.yamltext"]):
    from tests.fuzz.test_fuzz_rulesets import use

    from clusterip.rulesets import recognise


def one(data: bytes) -> None:
    use(recognise.read("fuzz", data))


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-timeout=10", "-rss_limit_mb=3000"], one)
    atheris.Fuzz()
