# SPDX-License-Identifier: Apache-2.0
"""Comparing rules on one schedule, and planning what a budget affords."""

from dosimeter.compare.comparison import Comparison, Line, compare
from dosimeter.compare.planning import Plan, plan
from dosimeter.compare.schedule import read_schedule

__all__ = ["Comparison", "Line", "Plan", "compare", "plan", "read_schedule"]
