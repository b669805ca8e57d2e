# SPDX-License-Identifier: Apache-2.0
"""What a private training run decides, from released readings alone; needs no torch.

Settings of a step and the ticket for it, the controls of a run, the policies that turn them, and
the history that they leave. A trainer on any library implements `Controls` and uses the rest.
"""

from dosimeter.decisions.adapt import AdaptBatch, AdaptNoise, LowerNoise
from dosimeter.decisions.choices import Horizon, RootBatch, lasting, require_useful
from dosimeter.decisions.controls import Controls, Rehearsal
from dosimeter.decisions.history import Epoch, History
from dosimeter.decisions.menus import costs_of, filter_for
from dosimeter.decisions.policy import Policy
from dosimeter.decisions.rates import AutoRate, RateRule, Released
from dosimeter.decisions.readings import Reading
from dosimeter.decisions.settings import Piece, StepSettings, Ticket
from dosimeter.decisions.steering import Steering
from dosimeter.decisions.stop import StopEarly

__all__ = [
    "AdaptBatch",
    "AdaptNoise",
    "AutoRate",
    "Controls",
    "Epoch",
    "History",
    "Horizon",
    "LowerNoise",
    "Piece",
    "Policy",
    "RateRule",
    "Reading",
    "Rehearsal",
    "Released",
    "RootBatch",
    "Steering",
    "StepSettings",
    "StopEarly",
    "Ticket",
    "costs_of",
    "filter_for",
    "lasting",
    "require_useful",
]
