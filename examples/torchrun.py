# SPDX-License-Identifier: Apache-2.0
"""One model on several processes: torchrun --standalone --nproc-per-node=2 examples/torchrun.py

Noise and batch size change on the way, and the budget of rank 0 ends it for all. With `--shard` the
model is cut by FSDP2's `fully_shard`, each rank keeping its part of parameters and optimizer state.
"""

import sys

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import PrivateEngine


def main() -> None:
    """Trains until the budget ends; rank 0 says how it went."""
    distributed.init_process_group("gloo")
    torch.manual_seed(0)  # the same data on every rank, which draws from its own share
    x = torch.randn(2000, 20)
    data = TensorDataset(x, (x.sum(dim=1) > 0).long())
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    if "--shard" in sys.argv:
        mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
        fully_shard(model, mesh=mesh)
    engine = PrivateEngine(dm.Filter(epsilon=2, delta=1e-5))
    private, optimizer, loader = engine.make_private(
        model,
        torch.optim.Adam(model.parameters(), lr=0.01),
        data,
        noise_multiplier=4.0,
        max_grad_norm=1.0,
        batch_size=100,
        physical_batch_size=40,
    )
    while not engine.exhausted:
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(private(inputs), labels).backward()
            optimizer.step()
        engine.noise_multiplier = max(2.0, 0.8 * engine.noise_multiplier)
        engine.batch_size = min(250, engine.batch_size + 50)
    own = sum(
        p.to_local().numel() if "--shard" in sys.argv else p.numel() for p in model.parameters()
    )
    if distributed.get_rank() == 0:
        print(f"{engine.steps} steps, {engine.spends} paid, {own} numbers on this rank")
        print(engine.guarantee())
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
