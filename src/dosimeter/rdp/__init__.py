# SPDX-License-Identifier: Apache-2.0
"""What a mechanism costs: Rényi curves over a grid of orders."""

from typing import TYPE_CHECKING

from dosimeter.rdp.cost import Cost
from dosimeter.rdp.mechanisms import ApproxDp, Curve, Gaussian, Laplace, PureDp, Zcdp
from dosimeter.rdp.orders import Orders
from dosimeter.rdp.sampled_gaussian import SampledGaussian

if TYPE_CHECKING:
    from dosimeter.rdp.event import Event

__all__ = [
    "ApproxDp",
    "Cost",
    "Curve",
    "Event",
    "Gaussian",
    "Laplace",
    "Orders",
    "PureDp",
    "SampledGaussian",
    "Zcdp",
]


def __getattr__(name: str) -> object:
    # dp-accounting takes most of a second to import; only Event needs it.
    if name == "Event":
        from dosimeter.rdp.event import Event

        return Event
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
