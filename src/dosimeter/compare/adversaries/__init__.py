# SPDX-License-Identifier: Apache-2.0
"""Adversaries as finite trees, played against a rule in 60 digits.

A `FiniteMechanism` is a cost whose every probability is known; a `Step` asks for one and decides by
its output what to ask for next. `play` enumerates all views, so the delta that it returns is a fact
about the rule. The package may import costs and accounting alone.
"""

from dosimeter.compare.adversaries.mechanism import FiniteMechanism
from dosimeter.compare.adversaries.menu import menu_adversary
from dosimeter.compare.adversaries.play import Realised, Step, play

__all__ = [
    "FiniteMechanism",
    "Realised",
    "Step",
    "menu_adversary",
    "play",
]
