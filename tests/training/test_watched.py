# SPDX-License-Identifier: Apache-2.0
"""fit under a watch: the page's button ends it at the next step, with its results kept."""

from __future__ import annotations

import torch

import dosimeter as dm
from dosimeter import watching
from dosimeter.training import fit
from dosimeter.watching import STOPPED

DATA = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.arange(64) % 2)


def trained(run_page, epochs, callbacks=()):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    gate = dm.Filter(epsilon=50, delta=1e-5)
    history = fit(
        model,
        DATA,
        gate,
        epochs=epochs,
        batch_size=16,
        noise_multiplier=2.0,
        public=DATA,
        callbacks=callbacks,
        progress=False,
        watch=run_page.url,
    )
    return model, gate, history


def test_what_is_told_is_what_was_kept(run_page):
    _, gate, history = trained(run_page, 2)
    told = run_page.last
    assert (told["state"], told["ended"]) == ("ended", "all 2 epochs were done")
    assert [row["epsilon"] for row in told["history"]] == [one.epsilon for one in history]
    assert [row["loss"] for row in told["history"]] == [one.loss for one in history]
    assert told["limit"] == gate.limit


def test_stop_ends_a_run_at_the_next_step_with_its_results(run_page, monkeypatch):
    monkeypatch.setattr(watching, "_EVERY", 0.001)

    def press(engine, record):
        run_page.stop = True

    _, gate, history = trained(run_page, 100_000, [press])
    assert history.ended == STOPPED
    assert len(history) < 100_000
    assert history.guarantee
    assert gate.epsilon == history[-1].epsilon, "nothing was spent that is not in the history"
    assert (run_page.last["state"], run_page.last["ended"]) == ("ended", STOPPED)
    assert run_page.last["history"][-1]["epoch"] == len(history)
