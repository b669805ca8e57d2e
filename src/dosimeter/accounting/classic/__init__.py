# SPDX-License-Identifier: Apache-2.0
"""Published rules, one file per paper, to compare with and to match a paper's figures."""

from dosimeter.accounting.classic.composition import (
    AdvancedComposition,
    BasicComposition,
    PldComposition,
    RdpComposition,
)
from dosimeter.accounting.classic.feldman_zrnic2021 import FixedOrderFilter, StackedOdometer
from dosimeter.accounting.classic.lecuyer2021 import (
    PAPER_ORDERS,
    CurveFilter,
    LecuyerOdometer,
    SingleOrderFilter,
)
from dosimeter.accounting.classic.rogers2016 import RogersFilter
from dosimeter.accounting.classic.rule import Conversion, Rule, Validity

__all__ = [
    "PAPER_ORDERS",
    "AdvancedComposition",
    "BasicComposition",
    "Conversion",
    "CurveFilter",
    "FixedOrderFilter",
    "LecuyerOdometer",
    "PldComposition",
    "RdpComposition",
    "RogersFilter",
    "Rule",
    "SingleOrderFilter",
    "StackedOdometer",
    "Validity",
]
