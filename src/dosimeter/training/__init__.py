# SPDX-License-Identifier: Apache-2.0
"""Adaptive private training on PyTorch; needs the extra `torch`."""

from dosimeter.decisions import (
    AdaptBatch,
    AdaptNoise,
    AutoRate,
    Epoch,
    History,
    Horizon,
    LowerNoise,
    Policy,
    RateRule,
    Reading,
    RootBatch,
    StopEarly,
)
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.fit import fit, scalars_to
from dosimeter.training.following import Following
from dosimeter.training.onepass.factors import Clipping
from dosimeter.training.postprocessing import AveragedIterate, SignRule
from dosimeter.training.signals import CorrectCount, MeanLoss
from dosimeter.training.trainer import Trainer

__all__ = [
    "AdaptBatch",
    "AdaptNoise",
    "AutoRate",
    "AveragedIterate",
    "Clipping",
    "CorrectCount",
    "Epoch",
    "Following",
    "History",
    "Horizon",
    "LowerNoise",
    "MeanLoss",
    "Policy",
    "PrivateEngine",
    "RateRule",
    "Reading",
    "RootBatch",
    "SignRule",
    "StopEarly",
    "Trainer",
    "fit",
    "scalars_to",
]
