"""A reduction that comes from another process is the same one there, whatever texts hash to."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace

from otel_ml.wire.reduction import Reduction

FOUND = """
import pickle, sys
from otel_ml.wire.reduction import Reduction
sent = pickle.loads(bytes.fromhex(sys.argv[1]))
print({Reduction.parse("sum>max,mean@dp", "over"): "found"}.get(sent))
"""


def test_a_reduction_that_was_pickled_is_found_in_a_process_whose_texts_hash_otherwise() -> None:
    text = pickle.dumps(Reduction.parse("sum>max,mean@dp", "over")).hex()

    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", FOUND, text],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "found\n"


def test_what_is_made_of_a_reduction_hashes_as_what_it_equals() -> None:
    one = Reduction(("mean",), within="sum")

    for other in (copy.copy(one), copy.deepcopy(one), replace(Reduction(("mean",)), within="sum")):
        assert {one: "found"}.get(other) == "found"
    assert hash(replace(one, within=None)) == hash(Reduction(("mean",)))
