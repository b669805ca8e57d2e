# SPDX-License-Identifier: Apache-2.0
"""A group-by on Spark by Tumult Analytics, asked again and again until one budget says stop."""

import os
import sys

from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, QueryBuilder, RhoZCDPBudget, Session

import dosimeter as dm
from dosimeter.integrations.tmlt import PaidSession


def main() -> None:
    """Asks for the mean age by town until the budget refuses."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers need Tumult, too
    local = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", 1)
    spark = local.getOrCreate()
    rows = [(town, 20 + user % 60) for town in ("north", "south") for user in range(1000)]
    visits = spark.createDataFrame(rows, ["town", "age"])
    budget = dm.Filter(epsilon=1, delta=1e-6)
    session = PaidSession(
        Session.from_dataframe(RhoZCDPBudget(float("inf")), "visits", visits, AddOneRow()), budget
    )
    towns = KeySet.from_dict({"town": ["north", "south"]})
    query = QueryBuilder("visits").groupby(towns).average("age", low=0, high=100, name="age")
    for number in range(1, 100):
        try:
            answer = session.evaluate(query, RhoZCDPBudget(0.01))
        except dm.BudgetExceeded as refusal:
            print(f"query {number} refused: {refusal.reason}")
            break
        print(number, {row["town"]: round(row["age"], 1) for row in answer.collect()})
    print(budget.guarantee())


if __name__ == "__main__":
    main()
