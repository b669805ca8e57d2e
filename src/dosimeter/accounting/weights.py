# SPDX-License-Identifier: Apache-2.0
"""Which orders to mix and how to weigh them; always before the first spend.

A weight w on the order that turns out best costs about log(1/w) / (order - 1) of epsilon,
so extra orders are nearly free and a good guess is worth little more than a rough one.
Weights never change what is guaranteed, only how tight it is. They must come from public
parameters and can never change during a run.
"""

from __future__ import annotations

import math

import numpy as np

from dosimeter import arguments
from dosimeter.rdp import Cost, Orders
from dosimeter.rdp.orders import MAX_ORDER, FloatArray

DEFAULT_ORDERS = Orders(
    [
        *(1.25, 1.5, 1.75),
        *(2.0 + 0.25 * i for i in range(8)),
        *(4.0 + 0.5 * i for i in range(16)),
        *(float(a) for a in range(12, 21)),
        *(22.0, 24.0, 28.0, 32.0, 36.0, 40.0, 48.0, 56.0, 64.0, 80.0, 96.0, 128.0),
        *(160.0, 192.0, 256.0, 384.0, 512.0, 1024.0),
    ]
)
"""54 orders from 1.25 to 1024, dense where DP-SGD and common budgets need them."""

_CENTRE = 8.0
_FLOOR = 0.1
_BUDGET_CENTRE = 1.5
_BUDGET_WIDTH = 0.4
_PLAN_SHARE = 0.8


def default_weights(orders: Orders) -> FloatArray:
    """Weights for an unknown budget: a wide hump in log(order - 1) around 8, on a floor."""
    beta = orders.beta
    return _on_floor(orders, 1.0 / (_CENTRE / beta + beta / _CENTRE))


def budget_orders(epsilon: float, delta: float) -> Orders:
    """The default orders, extended where the budget needs larger or smaller ones."""
    centre = budget_centre(epsilon, delta)
    larger = [2.0**i for i in range(11, 17) if 2.0**i <= min(16 * centre, MAX_ORDER)]
    smaller = [1.0 + 2.0**-i for i in range(6, 2, -1) if 2.0**-i >= centre / 4]
    return Orders([*(smaller if centre < 0.5 else []), *DEFAULT_ORDERS, *larger])


def budget_weights(orders: Orders, epsilon: float, delta: float) -> FloatArray:
    """Weights for a budget: a log-normal hump where that budget has its best orders."""
    distance = np.log(orders.beta / budget_centre(epsilon, delta)) / _BUDGET_WIDTH
    return _on_floor(orders, np.exp(-(distance**2) / 2))


def plan_weights(
    orders: Orders, others: FloatArray, plan: tuple[Cost, int], delta: float
) -> FloatArray:
    """`others`, with most of the weight moved to the best order for `plan`: a cost and a count."""
    if not (isinstance(plan, tuple) and len(plan) == 2 and isinstance(plan[0], Cost)):
        raise TypeError(f"plan must be a pair (cost, count), got {plan!r}")
    cost, count = plan[0], arguments.count("plan count", plan[1])
    with np.errstate(over="ignore"):
        total = cost.rdp(orders) * count
    if not total.min() < math.inf:
        raise ValueError(f"plan must be finite at one of the orders, got {cost}")
    # The epsilon of each order alone, up to what does not depend on the order's weight.
    alone = total + np.log1p(-1 / orders.array) - np.log(delta * orders.array) / orders.beta
    weights = (1 - _PLAN_SHARE) * others
    weights[int(np.argmin(alone))] += _PLAN_SHARE
    return np.asarray(weights / weights.sum())


def budget_centre(epsilon: float, delta: float) -> float:
    """order - 1 around which a budget has its best orders, within what a grid can hold."""
    centre = _BUDGET_CENTRE * -math.log(delta) / max(epsilon, 1e-9)
    return min(max(centre, 1e-2), MAX_ORDER)


def _on_floor(orders: Orders, density: FloatArray) -> FloatArray:
    """A density in log(order - 1) as weights on the grid, over a floor that is flat there."""
    spacing = np.gradient(np.log(orders.beta)) if len(orders) > 1 else np.ones(1)
    shaped = spacing * density
    if not shaped.sum() > 0:
        return np.asarray(spacing / spacing.sum())
    weights = (1 - _FLOOR) * shaped / shaped.sum() + _FLOOR * spacing / spacing.sum()
    return np.asarray(weights / weights.sum())
