# SPDX-License-Identifier: Apache-2.0
"""Summaries, a scaler and a classifier of diffprivlib under one budget, until it says stop."""

import numpy as np
from diffprivlib import models, tools
from sklearn.datasets import load_breast_cancer

import dosimeter as dm
from dosimeter.integrations.diffprivlib import Accountant

BOUNDS = (np.array([5.0, 5.0]), np.array([30.0, 40.0]))
"""What radius and texture can be, known without the data."""


def main() -> None:
    """Asks until the budget refuses, then trains on what is left."""
    data = load_breast_cancer()
    X, y = data.data[:, :2], data.target
    budget = dm.Filter(epsilon=3, delta=1e-6, neighbours=dm.Neighbours.REPLACE_ONE_RECORD)
    with Accountant(budget) as accountant:
        model = models.GaussianNB(epsilon=0.5, bounds=BOUNDS).fit(X, y)
        print(f"classifier: {model.score(X, y):.2f} right, epsilon {budget.epsilon:.3f}")
        for number in range(1, 1000):
            try:
                radius = tools.mean(X[:, 0], epsilon=0.03, bounds=(5, 30))
            except dm.BudgetExceeded as refusal:
                print(f"refused: {refusal.reason}")
                break
            if number % 50 == 0:
                print(f"mean radius {radius:.2f} after {number}, epsilon {budget.epsilon:.3f}")
    print(f"{len(accountant)} payments: {budget.guarantee()}")


if __name__ == "__main__":
    main()
