# SPDX-License-Identifier: Apache-2.0
"""Adaptive private training on PyTorch and Opacus; needs the extra `torch`."""

from dosimeter.decisions import (
    AdaptBatch,
    AdaptNoise,
    Epoch,
    History,
    LowerNoise,
    Policy,
    Reading,
    StopEarly,
)
from dosimeter.training.engine import PrivateEngine
from dosimeter.training.fit import fit, scalars_to
from dosimeter.training.models import GradSampling
from dosimeter.training.postprocessing import AveragedIterate, SignRule
from dosimeter.training.signals import CorrectCount, MeanLoss
from dosimeter.training.trainer import Trainer

__all__ = [
    "AdaptBatch",
    "AdaptNoise",
    "AveragedIterate",
    "CorrectCount",
    "Epoch",
    "GradSampling",
    "History",
    "LowerNoise",
    "MeanLoss",
    "Policy",
    "PrivateEngine",
    "Reading",
    "SignRule",
    "StopEarly",
    "Trainer",
    "fit",
    "scalars_to",
]
