# SPDX-License-Identifier: Apache-2.0
"""Searches for good settings that are charged as a whole (extra: search).

`PrivateObjective` puts an Optuna study under one gate, and `best_of` publishes the best of a random
number of trials.
"""

from dosimeter.search.allowance import Allowance
from dosimeter.search.objective import PrivateObjective
from dosimeter.search.profile import approximate
from dosimeter.search.selection import best_of, selection

__all__ = ["Allowance", "PrivateObjective", "approximate", "best_of", "selection"]
