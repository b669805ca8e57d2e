"""A search over learning rates under one budget: every step and every score is charged to it.

Run it with: python examples/search.py
"""

import optuna
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.search import PrivateObjective
from dosimeter.training import CorrectCount, fit

torch.set_num_threads(1)
optuna.logging.set_verbosity(optuna.logging.WARNING)

x, y = load_digits(return_X_y=True)
inputs, labels = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
private = TensorDataset(inputs[:1400], labels[:1400])
held_out = TensorDataset(inputs[1400:], labels[1400:])  # private too: scores on it are charged
score = CorrectCount(noise_multiplier=15.0)


def objective(trial: optuna.Trial, gate: dm.Gate) -> float:
    """Trains a linear model as far as its allowance goes, and scores it privately."""
    model = torch.nn.Linear(64, 10)
    rate = trial.suggest_float("rate", 0.02, 20, log=True)
    fit(
        model,
        private,
        gate,
        epochs=4,
        batch_size=128,
        noise_multiplier=3.0,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=rate),
        progress=False,
    )
    return score.read(model, held_out, gate=gate).value / len(held_out)


budget = dm.Filter(epsilon=6, delta=1e-5)
study = optuna.create_study(direction="maximize")
study.optimize(PrivateObjective(objective, budget, trials=12), n_trials=8)
for trial in study.trials:
    right = "pruned" if trial.value is None else f"{trial.value:.1%}"
    print(f"trial {trial.number}: rate {trial.params['rate']:.3g}, {right}")
print(
    f"best rate {study.best_params['rate']:.3g}; "
    f"the whole search spent epsilon {budget.epsilon:.2f}"
)
print(budget.guarantee())
