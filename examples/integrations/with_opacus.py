# SPDX-License-Identifier: Apache-2.0
"""The loop of Opacus' tutorials, with noise that falls while it trains, under one filter."""

import warnings

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dosimeter as dm
from dosimeter.integrations.opacus import PrivacyEngine


def main() -> None:
    """Trains until the budget ends."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    gate = dm.Filter(epsilon=2, delta=1e-5)
    engine = PrivacyEngine(gate)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        data_loader=DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=150),
        noise_multiplier=3.0,
        max_grad_norm=1.0,
    )
    try:
        while True:
            for inputs, targets in loader:
                optimizer.zero_grad()
                cross_entropy(model(inputs), targets).backward()
                optimizer.step()
            optimizer.noise_multiplier = max(1.5, 0.9 * optimizer.noise_multiplier)
    except dm.BudgetExceeded:
        print(f"stopped after {len(engine.accountant)} steps, epsilon {gate.epsilon:.3f}")
    right = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
    print(f"accuracy {float(right):.3f} on images that were set aside")
    print(gate.guarantee())


if __name__ == "__main__":
    main()
