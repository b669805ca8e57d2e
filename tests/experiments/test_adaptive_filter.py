"""The page on one filter for all says what was recorded, and the presets run."""

import copy
import tomllib

import pytest

pytest.importorskip("kymatio")

import torch

import dosimeter as dm
from dosimeter.rdp.plain import from_plain
from experiments import cifar, record
from experiments.adaptive_filter import features, run, table
from experiments.adaptive_filter.train import new_filter

ONE_OF_A_KIND = (
    "fixed",
    "adaptive noise",
    "adaptive batch",
    "rate ÷ 10, sign rule",
    "noise too large, lower noise",
)
CONFIG = tomllib.loads((run.FOLDER / "config.toml").read_text())


@pytest.fixture(scope="module")
def document():
    return record.load(run.FOLDER)


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder of made-up images: bright ones and dark ones."""
    from PIL import Image

    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    for part, count in (("train", 12), ("test", 4)):
        for label, bright in (("dark", 40), ("light", 200)):
            (tmp_path / "images" / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = (bright + 20 * torch.randn(32, 32, 3)).clamp(0, 255).byte().numpy()
                Image.fromarray(pixels).save(tmp_path / "images" / part / label / f"{number}.png")
    return tmp_path / "images"


def tiny(preset, name):
    """An arm of a preset on 24 records, two epochs long, with a reading after each."""
    arm = copy.deepcopy(run.arms(CONFIG, preset)[name])
    if "policy" in arm:
        arm["policy"]["every"] = 1
    start = {"batch_size": 6, "noise_multiplier": arm["noise_multiplier"]}
    arm |= {"records": 24, "physical_batch_size": 4, "epochs": 2, "measure_every": 1}
    return arm | start | {"limit": 50.0, "plan": {**start, "steps": 8}}


def epsilons(arm, spends):
    """Epsilon at the end of every epoch, from the spends alone."""
    gate, found, drawn = new_filter(arm), [], 0.0
    for cost, count in [(from_plain(plain), count) for plain, count in spends]:
        rate = getattr(cost, "sample_rate", None)
        if rate is None:
            # A reading belongs to the epoch before it, which the filter may have cut short.
            gate.spend(cost, count)
            found[-1 if not drawn else len(found) :] = [gate.epsilon]
            drawn = 0.0
            continue
        while count:
            wanted = next(n for n in range(1, 10**6) if drawn + n * rate > 1 - 1e-9)
            taken = min(count, wanted)
            gate.spend(cost, taken)
            count, drawn = count - taken, drawn + taken * rate
            if drawn > 1 - 1e-9:
                found.append(gate.epsilon)
                drawn = 0.0
    return found + ([gate.epsilon] if drawn else [])


class TestResults:
    def test_settings_are_those_of_the_configuration(self, document):
        assert document["config"] == CONFIG
        fresh = run.arms(CONFIG, "laptop")
        assert fresh == {name: arm["settings"] for name, arm in document["results"].items()}

    def test_every_epsilon_follows_from_the_spends(self, document):
        for name, arm in document["results"].items():
            assert [one["seed"] for one in arm["runs"]] == CONFIG["seeds"]
            for one in arm["runs"]:
                found = epsilons(arm["settings"], one["spends"])
                assert len(found) == one["epochs"], name
                assert found[-1] == pytest.approx(one["epsilon"], abs=1e-5), name
                assert one["epsilon"] <= arm["settings"]["limit"]
                for point in one["curve"]:
                    assert found[point["epoch"] - 1] == pytest.approx(point["epsilon"], abs=1e-5)

    def test_summaries_are_of_the_runs(self, document):
        for arm in document["results"].values():
            assert arm["summary"] == run.summary(arm["runs"])

    def test_more_than_62_percent_at_three(self, document):
        arm = document["results"]["tuned at 3"]
        assert arm["summary"]["average"][0] > 0.62
        assert arm["summary"]["epsilon"][2] <= 3
        assert max(one["cpu_seconds"] for one in arm["runs"]) < 300

    def test_the_page_holds_the_table(self, document):
        page = (run.FOLDER / "README.md").read_text()
        for line in (*table.HEAD, *table.rows(document["results"])):
            assert line in page.splitlines()

    def test_the_overview_quotes_the_results(self, document):
        page = (run.FOLDER.parent / "README.md").read_text()
        found = {
            name: [f"{100 * value:.2f}" for value in arm["summary"]["average"]]
            for name, arm in document["results"].items()
        }
        fixed, noise, batch = (found[name][0] for name in list(found)[:3])
        assert f"fixed {fixed} %, noise {noise} %, batch {batch} %" in page
        mean, low, high = found["tuned at 3"]
        assert (
            f"a tuned fixed run {found['tuned'][0]} %; {mean} % ({low} to {high}) at ε = 3" in page
        )


class TestPresets:
    @pytest.mark.parametrize("name", ONE_OF_A_KIND)
    def test_the_laptop_preset_runs(self, name, images):
        arm = tiny("laptop", name)
        told = []
        out = run.run_arm(images, "cpu", arm, 0, lambda *words: told.append(words))
        assert out["epochs"] == 2
        assert [words[:2] for words in told] == [(1, 2), (2, 2)]
        assert epsilons(arm, out["spends"])[-1] == pytest.approx(out["epsilon"], abs=1e-5)
        assert 0 <= out["last"] <= 1

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["fixed", "adaptive noise", "adaptive batch"])
    def test_the_paper_preset_runs(self, name, images):
        arm = {**tiny("paper", name), "batch_size": 12, "epochs": 1}
        out = run.run_arm(images, "cpu", arm, 0, lambda *_: None)
        assert (out["epochs"], out["steps"]) == (1, 2)
        readings = [cost for cost, _ in out["spends"] if cost["kind"] == "gaussian"]
        assert len(readings) == (0 if name == "fixed" else 1)

    def test_the_paper_preset_is_the_papers(self):
        arms = run.arms(CONFIG, "paper")
        assert list(arms) == ["fixed", "adaptive noise", "adaptive batch"]
        assert {arm["limit"] for arm in arms.values()} == {arms["fixed"]["limit"]}
        step, reading = dm.SampledGaussian(512 / 50_000, 1.0), dm.Gaussian(100.0)
        for limit, fits in (
            (arms["fixed"]["limit"], True),
            (arms["fixed"]["limit"] - 0.001, False),
        ):
            gate = new_filter({**arms["fixed"], "limit": limit})
            admitted = gate.admits(step, 98 * 100)
            if admitted:
                gate.spend(step, 98 * 100)
                admitted = gate.admits(reading, 10)
            assert admitted == fits

    @pytest.mark.slow
    def test_arms_and_seeds_are_collected(self, images):
        config = {**CONFIG, "seeds": [0, 1], "laptop": {**CONFIG["laptop"]}}
        fixed = {**CONFIG["laptop"]["arms"]["fixed"], "epochs": 1, "batch_size": 6}
        config["laptop"]["arms"] = {"fixed": fixed}
        config["laptop"]["common"] = {**CONFIG["laptop"]["common"], "records": 24}
        results = run.collect(config, "laptop", images, device="cpu", jobs=1)
        assert [one["seed"] for one in results["fixed"]["runs"]] == [0, 1]
        assert results["fixed"]["summary"]["epochs"] == [1, 1, 1]


class TestFeatures:
    def test_each_image_by_itself(self, images):
        x = cifar.read(images).train.x
        settings = CONFIG["laptop"]["common"]["features"]
        whole, one = (
            features.reduce(torch.from_numpy(features.scattering(part)), **settings)
            for part in (x, x[3:4])
        )
        assert whole.shape == (24, 16 * (81 + 2 * 17))
        assert torch.allclose(whole[3:4], one, atol=1e-3)

    def test_a_wrong_number_of_records_is_named(self, images):
        arm = {**tiny("laptop", "fixed"), "records": 25}
        with pytest.raises(ValueError, match="must hold 25 records, got 24"):
            run.run_arm(images, "cpu", arm, 0, lambda *_: None)
