"""What a run without a network leaves behind shows the curve of epsilon and the guarantee."""

import warnings

import pytest
import torch
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import fit, scalars_to
from integrations.pages import run_page

pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)
RELEASED = {"privacy/epsilon", "privacy/noise_multiplier", "privacy/batch_size"}


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


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The names that the page makes, which runs as it stands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield run_page("trackers")


def test_mlflow(here, page):
    import mlflow

    mlflow.set_tracking_uri(f"file:{here}/mlruns")
    with mlflow.start_run() as run:
        history = trained(scalars_to(page["MLflowWriter"]()))
    client = mlflow.MlflowClient()
    found = client.get_metric_history(run.info.run_id, "privacy/epsilon")
    assert [(point.step, point.value) for point in found] == list(curve(history))
    data = client.get_run(run.info.run_id).data
    assert data.metrics["privacy/noise_multiplier"] == 2.0
    assert set(data.metrics) == RELEASED


def test_weights_and_biases(here, page, capfd):
    import wandb

    run = wandb.init(mode="offline", dir=str(here))
    history = trained(scalars_to(page["WandbWriter"](run)))
    assert {name for name in run.summary.keys() if not name.startswith("_")} == RELEASED
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
    assert set(events.Tags()["scalars"]) == RELEASED
    found = [(point.step, point.value) for point in events.Scalars("privacy/epsilon")]
    assert found == [(step, pytest.approx(epsilon, rel=1e-6)) for step, epsilon in curve(history)]
