# SPDX-License-Identifier: Apache-2.0
"""An OpenDP script as it was, put on a budget by the three lines that are marked."""

import opendp.prelude as dp
import polars as pl

import dosimeter as dm  # dosimeter
from dosimeter.integrations.opendp import Context  # dosimeter

dp.enable_features("contrib")

visits = pl.LazyFrame({"age": [20.0, 35.0, 50.0, 65.0] * 250, "clinic": ["north", "south"] * 500})

context = Context.compositor(dm.Filter(epsilon=1, delta=1e-6),  # dosimeter
    data=visits,
    privacy_unit=dp.unit_of(contributions=1),
    privacy_loss=dp.loss_of(rho=0.01),
    split_evenly_over=3,
    margins=[
        dp.polars.Margin(by=(), max_length=5000),
        dp.polars.Margin(by=["clinic"], max_groups=2, invariant="keys"),
    ],
)  # fmt: skip

total = context.query().select(dp.len(signed=True), pl.col("age").dp.sum((0.0, 100.0)))
row = total.release().collect().row(0)
print(f"visits {row[0]}, mean age {row[1] / row[0]:.1f}")

clinics = context.query().group_by("clinic").agg(dp.len(signed=True))
print(clinics.release().collect().sort("clinic"))

print("left:", context.remaining_privacy_loss())
