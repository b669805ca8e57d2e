# SPDX-License-Identifier: Apache-2.0
"""Exact adversaries against rules, and an audit of engines."""

from dosimeter.attack.auditing import Audit, audit, fixed
from dosimeter.attack.buyer import best_buyer
from dosimeter.attack.mechanism import FiniteMechanism
from dosimeter.attack.play import Realised, Step, play
from dosimeter.attack.search import Shape, strongest

__all__ = [
    "Audit",
    "FiniteMechanism",
    "Realised",
    "Shape",
    "Step",
    "audit",
    "best_buyer",
    "fixed",
    "play",
    "strongest",
]
