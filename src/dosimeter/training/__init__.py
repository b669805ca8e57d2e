# SPDX-License-Identifier: Apache-2.0
"""Adaptive private training on PyTorch and Opacus; needs the extra `torch`."""

from dosimeter.training.engine import PrivateEngine
from dosimeter.training.fit import fit
from dosimeter.training.history import Epoch, History
from dosimeter.training.models import GradSampling
from dosimeter.training.policies import AdaptBatch, AdaptNoise, LowerNoise, Policy, StopEarly
from dosimeter.training.postprocessing import AveragedIterate, SignRule
from dosimeter.training.signals import CorrectCount, MeanLoss, Reading, correct_count, mean_loss

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
    "correct_count",
    "fit",
    "mean_loss",
]
