# SPDX-License-Identifier: Apache-2.0
"""SQL with noise, query after query on a database, until one budget says stop."""

import sqlite3

import snsql

import dosimeter as dm
from dosimeter.integrations.smartnoise import PaidReader

METADATA = {
    "": {
        "main": {
            "visits": {
                "row_privacy": True,
                "age": {"type": "int", "lower": 0, "upper": 100},
                "town": {"type": "string"},
            }
        }
    }
}


def main() -> None:
    """Asks for visits by town until the budget refuses."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE visits (age INTEGER, town TEXT)")
    rows = [(20 + user % 60, ("north", "south")[user % 2]) for user in range(2000)]
    database.executemany("INSERT INTO visits VALUES (?, ?)", rows)

    budget = dm.Filter(epsilon=1, delta=1e-6, approx_delta=1e-5)
    privacy = snsql.Privacy(epsilon=0.1, delta=1e-6)
    reader = PaidReader(
        snsql.from_connection(database, engine="sqlite", privacy=privacy, metadata=METADATA), budget
    )
    query = "SELECT town, COUNT(*) AS visits FROM main.visits GROUP BY town"
    for number in range(1, 100):
        try:
            _, *towns = reader.execute(query)
        except dm.BudgetExceeded as refusal:
            print(f"query {number} refused: {refusal.reason}")
            break
        print(number, dict(towns))
    print(budget.guarantee())


if __name__ == "__main__":
    main()
