"""What a run without a network leaves behind shows the curve of epsilon and the guarantee."""

import warnings

import pytest
import torch
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import fit, scalars_to
from integrations.pages import run_example, run_page

pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)


def trained(callback):
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    return fit(
        torch.nn.Linear(4, 2), TensorDataset(x, (x.sum(dim=1) > 0).long()),
        dm.Odometer(delta=1e-6), epochs=3, noise_multiplier=2.0, batch_size=50, progress=False,
        callbacks=[callback])  # fmt: skip


def curve(history):
    steps = 0
    for epoch in history.epochs:
        steps += epoch.steps
        yield steps, epoch.epsilon


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tmp_path


def test_mlflow(here):
    import mlflow

    from dosimeter.integrations.mlflow import to_mlflow

    mlflow.set_tracking_uri(f"file:{here}/mlruns")
    with mlflow.start_run() as run:
        history = trained(to_mlflow())
    client = mlflow.MlflowClient()
    found = client.get_metric_history(run.info.run_id, "privacy/epsilon")
    assert [(point.step, point.value) for point in found] == list(curve(history))
    data = client.get_run(run.info.run_id).data
    assert data.metrics["privacy/noise_multiplier"] == 2.0
    assert "odometer" in data.tags["privacy.guarantee"]


def test_weights_and_biases(here, capfd):
    import wandb

    from dosimeter.integrations.wandb import to_wandb

    run = wandb.init(mode="offline", dir=str(here))
    history = trained(to_wandb(run))
    assert "odometer" in run.summary["privacy/guarantee"]
    assert run.step >= 12
    run.finish()
    assert list(here.glob("wandb/offline-run-*/*.wandb"))
    said = "".join(capfd.readouterr())
    assert "privacy/epsilon ▁▅█" in said  # it rises, epoch by epoch
    assert f"privacy/epsilon {history.epsilon:.5f}" in said


def test_tensorboard(here):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with warnings.catch_warnings(), SummaryWriter("logs") as writer:
        warnings.simplefilter("ignore")
        history = trained(scalars_to(writer))
    events = EventAccumulator("logs")
    events.Reload()
    found = [(point.step, point.value) for point in events.Scalars("privacy/epsilon")]
    assert found == [(step, pytest.approx(epsilon, rel=1e-6)) for step, epsilon in curve(history)]


def test_the_page(here):
    run_page("trackers")


def test_the_example(here):
    out = run_example("trackers", here)
    assert out.count("epsilon") >= 3
