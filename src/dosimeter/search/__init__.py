# SPDX-License-Identifier: Apache-2.0
"""Searches for good settings that are charged as a whole.

`tune` charges every step and every score of an adaptive search to one gate, and `best_of`
publishes the best of a random number of independent trials. Read `tune` first.
"""

from dosimeter.search.allowance import Allowance
from dosimeter.search.profile import approximate
from dosimeter.search.selection import best_of, selection
from dosimeter.search.space import Integer, Uniform
from dosimeter.search.tune import Trial, TuningResult, tune

__all__ = [
    "Allowance",
    "Integer",
    "Trial",
    "TuningResult",
    "Uniform",
    "approximate",
    "best_of",
    "selection",
    "tune",
]
