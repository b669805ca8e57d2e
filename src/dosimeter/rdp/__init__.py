# SPDX-License-Identifier: Apache-2.0
"""What a mechanism costs, and all else to be known of it: one class in one file for each."""

from dosimeter.neighbours import Neighbours
from dosimeter.rdp.approx_zcdp import ApproxZcdp
from dosimeter.rdp.best_of import BestOf
from dosimeter.rdp.cost import Cost
from dosimeter.rdp.curve import Curve
from dosimeter.rdp.event import Event
from dosimeter.rdp.gaussian import Gaussian
from dosimeter.rdp.gradual import Refinement, refine
from dosimeter.rdp.laplace import Laplace
from dosimeter.rdp.orders import Orders
from dosimeter.rdp.pure_dp import ApproxDp, PureDp
from dosimeter.rdp.sampled_gaussian import SampledGaussian
from dosimeter.rdp.together import Together
from dosimeter.rdp.zcdp import Zcdp

__all__ = [
    "MECHANISMS",
    "ApproxDp",
    "ApproxZcdp",
    "BestOf",
    "Cost",
    "Curve",
    "Event",
    "Gaussian",
    "Laplace",
    "Neighbours",
    "Orders",
    "PureDp",
    "Refinement",
    "SampledGaussian",
    "Together",
    "Zcdp",
    "refine",
]

MECHANISMS: tuple[type[Cost], ...] = (
    Gaussian,
    Laplace,
    SampledGaussian,
    PureDp,
    ApproxDp,
    Zcdp,
    ApproxZcdp,
    Curve,
    Event,
    Together,
    BestOf,
)
"""All that can be written down, read back and asked for by name, in the order of the help.

A list, because what a journal can make must not grow by somebody's defining a class.
"""
