# SPDX-License-Identifier: Apache-2.0
"""Policies: read released signals, change the steps to come."""

from dosimeter.training.policies.adapt import AdaptBatch, AdaptNoise, LowerNoise
from dosimeter.training.policies.policy import Policy
from dosimeter.training.policies.stop import StopEarly

__all__ = ["AdaptBatch", "AdaptNoise", "LowerNoise", "Policy", "StopEarly"]
