# SPDX-License-Identifier: Apache-2.0
"""Adaptive private training on PyTorch and Opacus; needs the extra `torch`."""

from dosimeter.training.engine import PrivateEngine
from dosimeter.training.models import GradSampling

__all__ = ["GradSampling", "PrivateEngine"]
