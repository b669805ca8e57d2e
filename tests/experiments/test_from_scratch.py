"""CIFAR-10 without pretraining: features are what they say, and the results fit the settings."""

import re
import tomllib

import numpy as np
import pytest

pytest.importorskip("kymatio")

import torch
from kymatio.torch import Scattering2D

import dosimeter as dm
from experiments import record
from experiments.from_scratch import features, run
from experiments.from_scratch.scattering import Scattering

CONFIG = tomllib.loads((run.FOLDER / "config.toml").read_text())


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(0)
    return torch.nn.functional.avg_pool2d(torch.rand(4, 3, 36, 36), 5, 1)


def test_the_transform_is_kymatios(images):
    expected = Scattering2D(J=2, shape=(32, 32))(images)
    found = Scattering(32, first=0.0)(images)
    # Smoothed maps of half the places differ by what is folded over.
    torch.testing.assert_close(found, expected, rtol=0.02, atol=1e-4)


def test_without_the_second_order_the_first_is_as_it_was(images):
    transform = Scattering(32)
    assert torch.equal(transform(images, second=False), transform(images)[:, :, : features.FIRST])


@pytest.fixture(scope="module")
def pixels(images):
    return (255 * images.permute(0, 2, 3, 1)).byte().numpy()


def test_an_image_and_its_mirror_have_the_same_features(pixels):
    one, other = (
        features.mirrored(features.scattered(each)) for each in (pixels, pixels[:, :, ::-1])
    )
    assert one.shape == (4, features.MAPS, 8, 4)
    # Wavelets of the second scale are taken at every second place, which a mirror shifts by one.
    assert float((one - other).abs().max() / one.std()) < 0.1
    for start in (0, features.ALL, features.ALL + features.FIRST):
        fine = slice(start, start + 9)
        torch.testing.assert_close(one[:, fine], other[:, fine], rtol=1e-4, atol=1e-6)


def test_maps_are_of_luma_first_and_grey_has_no_chroma(pixels):
    grey = np.repeat(pixels[..., :1], 3, axis=3)
    found = features.scattered(grey)
    assert float(found[:, features.ALL :].abs().max()) < 1e-4
    plane = torch.from_numpy(grey[..., 0]).float().div(255)
    torch.testing.assert_close(found[:, : features.ALL], Scattering(32)(plane), rtol=0, atol=1e-4)


def test_no_image_has_a_part_in_the_features_of_another(pixels):
    together, alone = (
        features.normalised(features.mirrored(features.scattered(some)))
        for some in (pixels, pixels[1:2])
    )
    torch.testing.assert_close(together[1], alone[0], rtol=1e-3, atol=1e-4)


def test_wavelets_are_normalised_by_image_and_its_colour_stays(pixels):
    maps = features.mirrored(features.scattered(pixels))
    found = features.normalised(maps)
    planes = 0
    pairs = zip(*(each.split(features.GROUPS, dim=1) for each in (maps, found)), strict=True)
    for before, after in pairs:
        if before.shape[1] == 1:
            shift, scale = features.SCALES[planes]
            torch.testing.assert_close(after, (before - shift) * scale)
            planes += 1
        else:
            logs = (before + 0.1 * before.mean(dim=(1, 2, 3), keepdim=True)).log().flatten(1)
            deviation, mean = torch.std_mean(logs, dim=1, correction=0, keepdim=True)
            expected = (logs - mean) / deviation
            torch.testing.assert_close(after.flatten(1), expected, rtol=0, atol=0.02)
    assert planes == 3


HOW = CONFIG["whitening"]


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 60000.0])
@pytest.mark.parametrize("norm", [0.5, 80.0])
def test_one_record_adds_no_more_than_it_is_charged_for(size, norm):
    x = np.full((3, 7, 2, 2), size, np.float16)
    assert float((run.sums(x, norm) - run.sums(x[:2], norm)).norm()) <= 1 + 1e-5
    gate, alone = dm.Filter(10, 1e-6), dm.Filter(10, 1e-6)
    run.whitening(x, gate, HOW, 0)
    alone.spend(dm.Gaussian(HOW["noise_multiplier"]))
    assert gate.epsilon == alone.epsilon


def test_the_noise_is_what_is_charged_for():
    x = np.zeros((1, 40, 2, 2), np.float16)
    gate, seen = dm.Filter(10, 1e-6), []
    for seed in range(20):
        mean, _ = run.whitening(x, gate, {"noise_multiplier": 9.0, "norm": 4.0, "least": 1.0}, seed)
        seen.append(mean)
    # The mean of an entry and its mirror: 800 of them, so 4 deviations are a tenth.
    assert float(torch.cat(seen).std()) == pytest.approx(9 * 4 / 2**0.5, rel=0.1)


def correlated(records):
    """Five maps of three causes, the last of which varies little."""
    random = np.random.default_rng(0)
    causes = random.normal(0, 1, (records, 3, 4, 4)) * np.array([2, 1, 0.05])[:, None, None]
    mixed = np.einsum("ncij,cd->ndij", causes, random.normal(0, 1, (3, 5)))
    return (0.3 + mixed).astype(np.float16)


def test_whitened_maps_vary_alike_where_they_vary_and_no_more_elsewhere():
    x = correlated(4000)
    how = {"noise_multiplier": 1e-3, "norm": 1e3, "least": 0.2}
    found = run.whitening(x, dm.Odometer(delta=1e-6), how, 0)
    torch.testing.assert_close(found[0], torch.full((5,), 0.3), rtol=0, atol=0.1)
    maps = run.whitened(x, found).float()
    assert maps.shape == x.shape
    values = maps.transpose(0, 1).flatten(1)
    assert float(values.square().mean()) == pytest.approx(1, rel=0.01)
    before = torch.from_numpy(x).float().transpose(0, 1).flatten(1)
    sizes, after = torch.linalg.eigvalsh(before.cov()), torch.linalg.eigvalsh(values.cov())
    expected = sizes / (sizes + 0.2)
    torch.testing.assert_close(after, expected / expected.mean(), rtol=0.02, atol=0.02)


@pytest.mark.slow
def test_results_are_those_of_the_settings_and_within_epsilon():
    document = record.load(run.FOLDER)
    assert document["config"] == CONFIG
    runs = document["results"]["runs"]
    assert [each["seed"] for each in runs] == CONFIG["seeds"]
    noise, gate = run.priced(CONFIG, 50_000)
    for cost, count in run.planned(CONFIG, 50_000, noise):
        gate.spend(cost, count)
    for each in runs:
        assert each["noise_multiplier"] == noise
        assert each["epsilon"] == gate.epsilon <= CONFIG["epsilon"]
        assert each["steps"] == run.planned(CONFIG, 50_000, noise)[1][1]


def test_the_page_says_what_was_found():
    page = (run.FOLDER / "README.md").read_text()
    for each in record.load(run.FOLDER)["results"]["runs"]:
        assert f"{100 * each['accuracy']:.2f} %" in page
        minutes = (each["feature_seconds"] + each["training_seconds"]) / 60
        assert re.search(rf"\b{minutes:.1f} core-minutes", page)
