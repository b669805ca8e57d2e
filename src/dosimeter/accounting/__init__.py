# SPDX-License-Identifier: Apache-2.0
"""Adaptive composition: filters that stop and odometers that read."""

from dosimeter.accounting.filter import Filter
from dosimeter.accounting.gate import Gate
from dosimeter.accounting.guarantee import FilterGuarantee, OdometerGuarantee
from dosimeter.accounting.mixture import Mixture, Tangent
from dosimeter.accounting.odometer import Odometer

__all__ = [
    "Filter",
    "FilterGuarantee",
    "Gate",
    "Mixture",
    "Odometer",
    "OdometerGuarantee",
    "Tangent",
]
