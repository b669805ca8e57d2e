# SPDX-License-Identifier: Apache-2.0
"""Exact adversaries against any rule that decides what to admit."""

from dosimeter.attack.buyer import best_buyer
from dosimeter.attack.mechanism import FiniteMechanism
from dosimeter.attack.play import Realised, Step, play
from dosimeter.attack.search import Shape, strongest

__all__ = ["FiniteMechanism", "Realised", "Shape", "Step", "best_buyer", "play", "strongest"]
