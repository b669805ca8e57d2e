# SPDX-License-Identifier: Apache-2.0
"""OpenDP on one budget: a context that asks a gate before it asks the data.

A measurement says itself what it costs (`map` of its input distance, in its output measure), so it
is priced, paid for, and only then evaluated. The data stay where OpenDP keeps them, in an odometer
of its own without a limit; whether a query is answered is decided by the gate alone. Queries are
written as before, with lists or with Polars.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.integrations.parts import relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import ApproxDp, ApproxZcdp, Cost, PureDp, Zcdp

_INSTALL = "opendp[polars]==0.16.*"
require("opendp", "0.16", install=_INSTALL)

import opendp.prelude as dp  # noqa: E402  after the check of its version

_RECORD, _SWAP, _USER = Neighbours


def price(measurement: Any, d_in: Any, *, neighbours: Neighbours = _RECORD) -> Cost:
    """What one evaluation of a measurement costs, as OpenDP's own map says; asks nothing.

    Args:
        measurement: A measurement on a data set.
        d_in: How far neighbouring data sets are apart, in the measurement's input metric.
        neighbours: Which data sets those are.

    Raises:
        TypeError: Not a measurement.
        ValueError: The distance is not that of these neighbours, the output measure is none of the
            four that have a cost here, or the cost is not finite.
    """
    if not isinstance(measurement, dp.Measurement):
        raise TypeError(
            f"measurement must be an OpenDP Measurement, got {type(measurement).__name__}; "
            "chain noise to a transformation, and give an odometer a limit"
        )
    _require_relation(measurement.input_metric, d_in, neighbours)
    measure = str(measurement.output_measure.type)
    if measure not in _COSTS:
        raise ValueError(
            f"output_measure must be one of {', '.join(_COSTS)}, got {measure}; fix a delta with "
            "dp.c.make_fix_delta, or bound it yourself and spend that"
        )
    return _cost(measure, measurement.map(d_in), neighbours)


class Context(dp.Context):  # type: ignore[misc]  # its types are not read
    """An OpenDP `Context` whose queries are paid from a gate; make one with `compositor`.

    Attributes:
        gate: The filter, odometer or budget of a ledger that pays.

    Guarantee:
        Every answer was paid for before the data were touched, at what OpenDP's map says for the
        context's privacy unit, which must be the gate's. Queries may be chosen by earlier answers.
        A nested compositor is paid in full when it is made (docs/guarantees.md, point 4). That a
        measurement keeps its map is OpenDP's claim.
    """

    gate: Gate

    @staticmethod
    def compositor(
        gate: Gate,
        data: Any,
        privacy_unit: tuple[Any, Any],
        privacy_loss: tuple[Any, Any] | None = None,
        split_evenly_over: int | None = None,
        split_by_weights: Sequence[float] | None = None,
        domain: Any = None,
        margins: Any = None,
    ) -> Context:
        """A context as `dp.Context.compositor` makes it, but for the gate.

        Args:
            gate: What pays.
            data: The data, which nobody else should be able to ask.
            privacy_unit: What one neighbour may have more, such as `dp.unit_of(contributions=1)`.
            privacy_loss: With a split, what queries that name no loss take a share of. It is not a
                limit: the gate has that.
            split_evenly_over: How many shares it is cut into.
            split_by_weights: Or the weight of each share; the last one goes on being used.
            domain: What the data may be; read off them if not given, as OpenDP does.
            margins: What is public about groups in Polars data.
        """
        neighbours = relation_of(gate)
        _require_relation(*privacy_unit, neighbours)
        if split_evenly_over is None and split_by_weights is None:
            measure = dp.max_divergence() if privacy_loss is None else privacy_loss[0]
            privacy_loss = measure, _endless(measure)
        theirs = dp.Context.compositor(
            data, privacy_unit, privacy_loss, split_evenly_over, split_by_weights, domain, margins
        )
        # Not their queryable, which would answer without asking the gate.
        made = Context(theirs.accountant, None, theirs.d_in)
        made.gate, made._neighbours = gate, neighbours
        made._shares, made._taken = theirs.d_mids, [0]
        made._data, made._keepers = data, {}
        return made

    def query(self, **loss: float) -> Any:
        """Starts a query, at this loss (`rho=…`, `epsilon=…`, `delta=…`) or the next share."""
        asking = copy.copy(self)
        if loss:
            asking.accountant = self._keeper(dp.loss_of(**loss)[0])[0]
        elif self._shares:
            asking.d_mids = [self._shares[min(self._taken[0], len(self._shares) - 1)]]
        return super(Context, asking).query(**loss)

    def price(self, query: Any) -> Cost:
        """What a query would cost; nothing is spent and the data are not asked."""
        measurement = query if isinstance(query, dp.Measurement) else query.resolve()
        cost = price(measurement, self.d_in, neighbours=self._neighbours)
        domain, metric = self.accountant.input_space
        if measurement.input_domain != domain or measurement.input_metric != metric:
            raise ValueError(
                f"query must be on the data of this context, {domain} with {metric}, got one on "
                f"{measurement.input_domain} with {measurement.input_metric}"
            )
        return cost

    def __call__(self, query: Any) -> Any:
        """The answer to a measurement, once it is paid for.

        Raises:
            BudgetExceeded: The gate refuses. Nothing was spent, the data were not touched, and
                the context lives on.
        """
        cost = self.price(query)
        keeper = self._keeper(query.output_measure)[1]
        self.gate.spend(cost)
        self._taken[0] += self.d_mids is not None
        return keeper(query)

    def current_privacy_loss(self) -> float:
        """Epsilon spent from the gate so far, by whomever."""
        return self.gate.epsilon

    def remaining_privacy_loss(self) -> float:
        """Epsilon that the gate has left; infinite for an odometer."""
        return float(self.gate.remaining)  # type: ignore[attr-defined]  # all with a guarantee do

    def _keeper(self, measure: Any) -> tuple[Any, Any]:
        """OpenDP's odometer for measurements of a measure, and its hold on the data."""
        name = str(measure.type)
        if name not in self._keepers:
            odometer = dp.c.make_fully_adaptive_composition(
                *self.accountant.input_space, output_measure=measure
            )
            self._keepers[name] = odometer, odometer(self._data)
        kept: tuple[Any, Any] = self._keepers[name]
        return kept


def _endless(measure: Any) -> Any:
    """The loss with which OpenDP makes an odometer instead of a filter."""
    approximate = str(measure.type).startswith("Approximate")
    return (math.inf, 1.0) if approximate else math.inf


def _require_relation(metric: Any, d_in: Any, neighbours: Neighbours) -> None:
    """Raises ValueError unless this distance is that of neighbours of this relation."""
    kind = str(metric.type)
    fitting: tuple[Neighbours, ...] = ()
    if kind in ("SymmetricDistance", "InsertDeleteDistance"):
        fitting = (_RECORD, _USER) if d_in == 1 else (_USER,)
    elif kind in ("ChangeOneDistance", "HammingDistance") and d_in == 1:
        fitting = (_SWAP,)
    elif "SymmetricIdDistance" in kind or kind == "FrameDistance<SymmetricDistance>":
        fitting = (_USER,)
    if neighbours in fitting:
        return
    if not fitting:
        raise ValueError(
            f"privacy unit must be one whose neighbours have a name here, got {kind} of {d_in}: "
            "contributions=k, changes=1, or contributions with an identifier"
        )
    named = " or ".join(f"dosimeter.{each!r}" for each in fitting)
    raise ValueError(
        f"privacy unit must be that of the gate, {neighbours}, got {kind} of {d_in}; make the "
        f"gate with neighbours={named}"
    )


_NOTHING = 1e-300
"""The epsilon of what does not depend on the data: a pure cost has one above 0."""

_COSTS: dict[str, Callable[..., Cost]] = {
    "MaxDivergence": PureDp,
    "ZeroConcentratedDivergence": Zcdp,
    "Approximate<MaxDivergence>": ApproxDp,
    "Approximate<ZeroConcentratedDivergence>": ApproxZcdp,
}
"""What a loss in each output measure costs."""


def _cost(measure: str, loss: Any, neighbours: Neighbours) -> Cost:
    numbers = loss if isinstance(loss, tuple) else (loss,)
    if numbers[0] == 0:
        return ApproxDp(_NOTHING, *(numbers[1:] or (0.0,)), neighbours=neighbours)
    return _COSTS[measure](*numbers, neighbours=neighbours)
