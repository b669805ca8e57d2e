# SPDX-License-Identifier: Apache-2.0
"""SmartNoise SQL on one budget: a reader that pays for a query before the database reads a row.

A query is rewritten into exact aggregates, each with a mechanism that has an epsilon and a delta.
All of them are paid at once, or none, and only then does the database compute them.
"""

from __future__ import annotations

import math
from typing import Any

from dosimeter.accounting import Gate
from dosimeter.integrations.parts import relation_of, require
from dosimeter.neighbours import Neighbours
from dosimeter.rdp import ApproxDp, Cost, Together

require("smartnoise-sql", "1.0")

from snsql.sql.private_reader import PrivateReader  # noqa: E402  after the check of its version


class PaidReader(PrivateReader):
    """A private reader whose queries are paid from a gate: `PaidReader(reader, gate)`.

    Args:
        reader: What `snsql.from_df` or `from_connection` gave. Nobody else should ask it.
        gate: A filter, an odometer or a budget of a ledger, for neighbours that add or remove one
            record where the metadata have `row_privacy`, and one user where they name a private id.

    Attributes:
        gate: What pays.

    Guarantee:
        All mechanisms of a query are charged with their epsilon and delta, together, before the
        database is asked. That they keep them is SmartNoise's claim; the words of the metadata
        (bounds, `censor_dims`, `max_ids`) are whoever wrote them's.

    Raises:
        TypeError: Not a private reader, or not a gate with a guarantee.
        ValueError: It reads on Spark, where every look at an answer draws new noise.
    """

    def __init__(self, reader: PrivateReader, gate: Gate) -> None:
        if not isinstance(reader, PrivateReader):
            raise TypeError(f"reader must be a PrivateReader, got {type(reader).__name__}")
        if reader.engine.lower() == "spark":
            raise ValueError(
                "reader must give its answers at once, got one on Spark: its answers are computed "
                "anew, with new noise, whenever they are looked at. Use Tumult or PipelineDP there."
            )
        self.gate, self._neighbours = gate, relation_of(gate)
        super().__init__(reader.reader, reader.metadata, privacy=reader.privacy)

    def price(self, query_string: str) -> Cost:
        """What a query would cost; nothing is spent and the database is not asked."""
        return self._cost([pair for pair in self._get_mechanism_costs(query_string) if pair])

    def _execute_ast(
        self, query: Any, *args: Any, pre_aggregated: Any = None, **options: Any
    ) -> Any:
        """The answer to a query, once it is paid for.

        Raises:
            BudgetExceeded: The gate refuses. Nothing was spent, and the database was not asked.
        """
        if pre_aggregated is not None:
            raise ValueError("pre_aggregated must be left out: it was read before it was paid for")
        return super()._execute_ast(query, *args, **options)

    def _get_reader(self, query_ast: Any) -> Any:
        """What reads the exact aggregates: the last thing that is asked for before they are."""
        mechanisms = [mechanism for mechanism in self._get_mechanisms(query_ast) if mechanism]
        if any(math.isinf(mechanism.sensitivity) for mechanism in mechanisms):
            raise ValueError("columns must have bounds in the metadata, got one without")
        self._require_relation()
        if self._options.use_dpsu:
            raise ValueError(
                "use_dpsu must be off, for SmartNoise spends an epsilon of 1 on it that no "
                "mechanism says, got it on. Leave it out of the metadata."
            )
        self.gate.spend(self._cost([(each.epsilon, each.delta) for each in mechanisms]))
        return super()._get_reader(query_ast)

    def _cost(self, pairs: list[tuple[float, float]]) -> Cost:
        if not pairs:
            raise ValueError("query must have an aggregate, got none: rows are not for release")
        costs = [ApproxDp(*map(float, pair), neighbours=self._neighbours) for pair in pairs]
        return Together(costs) if len(costs) > 1 else costs[0]

    def _require_relation(self) -> None:
        """Raises ValueError unless what the metadata protect is what the gate does."""
        record, user = Neighbours.ADD_REMOVE_RECORD, Neighbours.ADD_REMOVE_USER
        fitting = record if self._options.row_privacy else user
        if self._neighbours not in (fitting, user):
            raise ValueError(
                f"gate must be for neighbours that {fitting}, as the metadata have it, got one for "
                f"{self._neighbours}; make it with neighbours=dosimeter.{fitting!r}"
            )
