# SPDX-License-Identifier: Apache-2.0
"""Tumult Analytics on one budget: a session that asks a gate before it asks Spark.

A query is given its privacy budget when it is evaluated, in the measure of its session. That budget
is what it costs, so it is paid for, and only then evaluated. The session's own budget is infinite:
the gate has the limit.
"""

from __future__ import annotations

from typing import Any

from dosimeter.accounting import Gate
from dosimeter.integrations.parts import relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import ApproxDp, Cost, PureDp, Zcdp

require("tmlt.analytics", "0.21")

from tmlt.analytics import (  # noqa: E402  after the check of its version
    ApproxDPBudget,
    PrivacyBudget,
    PureDPBudget,
    RhoZCDPBudget,
    Session,
)
from tmlt.analytics.query_builder import Query  # noqa: E402
from tmlt.core.metrics import SymmetricDifference  # noqa: E402

_COSTS: dict[Any, type[Cost]] = {
    PureDPBudget: PureDp,
    ApproxDPBudget: ApproxDp,
    RhoZCDPBudget: Zcdp,
}
"""What a budget of each measure costs."""


class PaidSession:
    """A session whose queries are paid from a gate: `PaidSession(session, gate)`.

    Views, schemas and the rest are the session's own.

    Args:
        session: Made with an infinite budget of the measure that queries will have, such as
            `RhoZCDPBudget(float("inf"))`. Nobody else should be able to ask it.
        gate: A filter, an odometer or a budget of a ledger, for the neighbours that the session
            protects: one row of one table, or with any other protected change one user.

    Attributes:
        gate: What pays.

    Guarantee:
        Every query is charged with its privacy budget before it is evaluated, and a partition with
        the budget of its parts when it is made. That a query keeps it is Tumult's claim.

    Raises:
        TypeError: Not a session, or not a gate with a guarantee.
        ValueError: The gate is for other neighbours, or the session has a limit of its own.
    """

    def __init__(self, session: Session, gate: Gate) -> None:
        if not isinstance(session, Session):
            raise TypeError(f"session must be a Session of Tumult, got {type(session).__name__}")
        self.gate, self._session = gate, session
        self._neighbours = relation_of(gate)
        _require_relation(session, self._neighbours)
        if not (left := session.remaining_privacy_budget).is_infinite:
            raise ValueError(
                f"session must have an infinite budget, for the gate has the limit, got {left}; "
                f"make it with {type(left).__name__}(float('inf'))"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._session, name)

    def price(self, privacy_budget: PrivacyBudget) -> Cost:
        """What a query with this budget costs; nothing is spent."""
        kind = _COSTS.get(type(privacy_budget))
        if kind is None:
            raise TypeError(f"privacy_budget must be a budget of Tumult, got {privacy_budget!r}")
        value = privacy_budget.value
        exact = value if isinstance(value, tuple) else (value,)
        numbers = [number.to_float(round_up=True) for number in exact]
        return kind(*numbers, neighbours=self._neighbours)

    def evaluate(self, query_expr: Any, privacy_budget: PrivacyBudget) -> Any:
        """The answer to a query, once it is paid for.

        Raises:
            BudgetExceeded: The gate refuses. Nothing was spent, and Spark was not asked.
        """
        cost = self.price(privacy_budget)
        if not isinstance(query_expr, Query):
            raise TypeError(f"query_expr must be a query of Tumult, got {query_expr!r}")
        # What Tumult would refuse is not paid for.
        self._session._noise_info(query_expr, privacy_budget)
        self.gate.spend(cost)
        return self._session.evaluate(query_expr, privacy_budget)

    def partition_and_create(
        self, source_id: str, privacy_budget: PrivacyBudget, column: str, splits: Any
    ) -> dict[str, Session]:
        """Sessions on parts of a table, paid for now with all that they may spend.

        Raises:
            BudgetExceeded: The gate refuses. Nothing was spent, and there are no parts.
        """
        cost = self.price(privacy_budget)
        self._session._create_partition_transformation(source_id, column, splits)
        self.gate.spend(cost)
        parts: dict[str, Session] = self._session.partition_and_create(
            source_id, privacy_budget, column, splits
        )
        return parts


def _require_relation(session: Session, neighbours: Neighbours) -> None:
    """Raises ValueError unless what the session protects is what the gate does."""
    metrics = list(session._input_metric.key_to_metric.values())
    distances = list(session._d_in.values())
    alone = len(metrics) == 1 and isinstance(metrics[0], SymmetricDifference)
    one_row = alone and distances[0] == 1
    user = Neighbours.ADD_REMOVE_USER
    if neighbours is user or (one_row and neighbours is Neighbours.ADD_REMOVE_RECORD):
        return
    fitting = Neighbours.ADD_REMOVE_RECORD if one_row else user
    raise ValueError(
        f"gate must be for neighbours that {fitting}, which is what the session protects, got one "
        f"for {neighbours}; make it with neighbours=dosimeter.{fitting!r}"
    )
