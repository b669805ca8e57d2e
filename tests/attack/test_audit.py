"""The audit: silent about engines that do what they charge for, loud about all others."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

import broken
import dosimeter as dm
from dosimeter.attack import audit, bounds, fixed, scores
from dosimeter.attack.watch import Watch
from dosimeter.cli.app import app
from dosimeter.training import PrivateEngine

torch.set_num_threads(1)


def audited(engine_factory, *, canaries=2000, seed=0, gate=None, **options):
    gate = dm.Filter(4.0, 1e-5) if gate is None else gate()
    # The engine's noise is new each time: a test that accuses one of a million runs is enough.
    options = {"false_alarm": 1e-6, **options}
    return audit(engine_factory, gate, canaries=canaries, seed=seed, **options)


def _named(given):
    """A name for a test that is the same in every process."""
    if isinstance(given, str):
        return given
    return "-".join(
        f"{k}={v if isinstance(v, int | float | str) else '...'}" for k, v in given.items()
    )


def names_of_alarms(done):
    return {one.name for one in done.findings if done.alarm(one)}


# -- engines ---------------------------------------------------------------------------------

FAST = ["noise x 0.9", "sample rate doubled", "one key for two steps"]


def test_a_healthy_engine_is_not_accused():
    done = audited(PrivateEngine)
    assert done.passed, done.verdict
    assert done.verdict.startswith("nothing found")
    assert done.gaussian.certain <= done.gaussian.epsilon < done.exact < done.claimed == 4.0
    assert done.one_run.certain <= done.one_run.epsilon < done.exact
    assert done.steps > 50


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in broken.DEFECTS],
)
def test_a_broken_engine_is_accused_of_its_defect(name, monkeypatch):
    make, kind = broken.DEFECTS[name]
    done = audited(make(monkeypatch))
    assert not done.passed
    assert kind in names_of_alarms(done), done.verdict
    assert done.verdict.startswith("VIOLATION")
    assert kind in done.verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noise x 0.5", "sample rate doubled", "no clipping of one layer"])
def test_the_gaussian_reading_passes_the_claim_where_far_too_much_is_told(name, monkeypatch):
    make, _ = broken.DEFECTS[name]
    done = audited(make(monkeypatch), canaries=10_000)
    assert done.gaussian.certain > done.claimed
    assert any("Nasr" in words for words in done.violations)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("options", [{}, {"clipping": "normalised"}, {"physical_batch_size": 64}])
def test_healthy_engines_are_not_accused(seed, options):
    """42 runs at 1e-4: one alarm among them has a probability of at most 0.0042."""
    done = audited(PrivateEngine, seed=seed, false_alarm=1e-4, **options)
    assert done.passed, done.verdict


@pytest.mark.parametrize(
    "options",
    [
        {"clipping": "normalised", "steps": 20},
        {"physical_batch_size": 64, "steps": 20},
        {"policy": fixed, "steps": 20},
        {"gate": lambda: dm.Odometer(1e-6), "steps": 20},
        {"sample_rate": 1.0, "noise_multiplier": 20.0, "steps": 20, "policy": fixed},
        {"sample_rate": 0.002, "noise_multiplier": 0.7, "steps": 60, "policy": fixed},
    ],
    ids=_named,
)
def test_a_healthy_engine_under_other_settings(options):
    done = audited(PrivateEngine, **options)
    assert done.passed, done.verdict
    assert done.steps == options["steps"]


def test_a_policy_sees_what_was_released_and_is_obeyed():
    seen = []

    def policy(engine, released):
        seen.append(released)
        engine.noise_multiplier = 3.0 + len(seen) % 2

    done = audited(PrivateEngine, policy=policy, steps=12, canaries=500)
    assert done.passed, done.verdict
    assert seen[0] is None
    assert seen[1].shape == (2, 500)


def test_a_budget_in_a_ledger_is_audited_like_any_gate(tmp_path):
    from dosimeter.ledger import Ledger

    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        ledger.create("audit", epsilon=1.0, delta=1e-5)
        done = audit(
            PrivateEngine, ledger["audit"], canaries=500, noise_multiplier=4.0, false_alarm=1e-6
        )
    assert done.passed, done.verdict
    assert done.claimed == 1.0


def test_an_engine_that_charges_less_than_it_does_is_accused():
    """What counts is what the gate was charged, whatever the engine says of itself."""

    class Cheap(PrivateEngine):
        def __init__(self, gate):
            super().__init__(Discount(gate))

    class Discount:
        def __init__(self, gate):
            self.gate = gate

        def admits(self, cost, count=1):
            return self.gate.admits(self._less(cost), count)

        def spend(self, cost, count=1):
            return self.gate.spend(self._less(cost), count)

        @property
        def epsilon(self):
            return self.gate.epsilon

        def _less(self, cost):
            return dm.SampledGaussian(cost.sample_rate, 1.5 * cost.noise_multiplier)

    assert "noise" in names_of_alarms(audited(Cheap, steps=20))


# -- the tests it is made of -----------------------------------------------------------------


def simulated(rng, *, steps=12, canaries=600):
    """A mechanism that is what was charged, without any engine."""
    present = rng.random(canaries) < 0.5
    watch = Watch(present, 2)
    for _ in range(steps):
        cost = dm.SampledGaussian(rng.choice([0.05, 0.1, 0.2]), rng.choice([0.8, 1.0, 1.6]))
        drawn = present & (rng.random(canaries) < cost.sample_rate)
        noise = cost.noise_multiplier * rng.standard_normal((2, canaries))
        watch.see(cost, drawn / math.sqrt(2) + noise)
    return watch


@pytest.mark.parametrize(
    ("runs", "level"), [(150, 0.1), pytest.param(4000, 0.01, marks=pytest.mark.slow)]
)
def test_no_kind_of_test_accuses_more_often_than_it_says(runs, level):
    """Counts above the 1 - 1e-4 quantile of the binomial fail: with 5 kinds, one time in 2000."""
    rng = np.random.default_rng(1)
    found = [[one.p for one in simulated(rng).findings()] for _ in range(runs)]
    alarms = (np.array(found) < level).sum(axis=0)
    assert alarms.max() <= stats.binom.isf(1e-4, runs, level), alarms
    assert alarms.sum() > 0


@pytest.mark.parametrize("cost", [(0.1, 2.0), (0.5, 0.7), (1.0, 1.0), (0.001, 5.0)])
def test_expected_moments_are_those_of_the_score(cost):
    cost = dm.SampledGaussian(*cost)
    rng = np.random.default_rng(0)
    noise = cost.noise_multiplier * rng.standard_normal(400_000)
    drawn = rng.random(len(noise)) < cost.sample_rate
    for charged, seen in zip(scores.expected(cost), (noise, noise + drawn), strict=True):
        values = scores.log_ratio(seen, cost)
        off = values - charged.mean
        assert abs(off.mean()) < 5 * math.sqrt(charged.variance / len(off))
        spread = math.sqrt((2 + charged.fourth / charged.variance**2) / len(off))
        assert abs((off**2).mean() / charged.variance - 1) < 5 * spread
        fourth = (off**4).mean() / charged.variance**2 - 3
        assert fourth == pytest.approx(charged.fourth / charged.variance**2, abs=0.4)


@pytest.mark.parametrize("cost", [(0.01, 0.3), (1e-6, 0.1), (0.5, 100.0)])
def test_expected_moments_at_the_ends(cost):
    """A grid ten times as fine."""
    cost = dm.SampledGaussian(*cost)
    at = np.linspace(-14, 14, 60_001)
    weights = stats.norm.pdf(at)
    weights /= weights.sum()
    values = scores.log_ratio(cost.noise_multiplier * at, cost)
    mean = weights @ values
    charged, _ = scores.expected(cost)
    assert charged.mean == pytest.approx(mean, rel=1e-6, abs=1e-15)
    assert charged.variance == pytest.approx(weights @ (values - mean) ** 2, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_one_run_bound_on_randomised_response(epsilon):
    """Its epsilon is known, and the bound comes near it from below; wrong one time in 10,000."""
    rng = np.random.default_rng(3)
    present = rng.random(20_000) < 0.5
    true = rng.random(len(present)) < 1 / (1 + math.exp(-epsilon))
    said = np.where(true, present, ~present) + 1e-6 * rng.random(len(present))
    bound = bounds.one_run(said, present, 0.0, 1e-4)
    assert 0.75 * epsilon < bound < epsilon
    assert bounds.one_run(said, present, 1e-9, 1e-4) <= bound


def test_the_one_run_bound_grows_with_right_guesses_only():
    rng = np.random.default_rng(4)
    present = rng.random(2000) < 0.5
    assert bounds.one_run(present.astype(float), present, 1e-9, 0.05) > 4
    assert bounds.one_run(-present.astype(float), present, 1e-9, 0.05) == 0
    assert bounds.one_run(rng.random(2000), present, 1e-9, 1e-3) == 0


def test_the_one_run_bound_allows_for_delta():
    """Telling all about one record in a hundred is (0, 0.01)-DP, and looks like a large epsilon."""
    rng = np.random.default_rng(6)
    present = rng.random(20_000) < 0.5
    told = rng.random(len(present)) < 0.01
    seen = np.where(told, np.where(present, 2.0, -2.0), rng.random(len(present)))
    assert bounds.one_run(seen, present, 0.0, 1e-3) > 2
    assert bounds.one_run(seen, present, 0.01, 1e-3) == 0


def test_the_gaussian_reading_is_too_large_no_more_often_than_it_says():
    """Fails one time in 10,000 for a bound that holds with just the probability it claims."""
    rng = np.random.default_rng(7)
    true, wrong = bounds.epsilon_of(1.0, 1e-5), 0
    for _ in range(100):
        present = rng.random(1000) < 0.5
        seen = rng.standard_normal(1000) + present
        wrong += bounds.gaussian(seen, present, 1e-5, 0.1, rng.permutation(1000)) > true
    assert wrong <= stats.binom.isf(1e-4, 100, 0.1)


@pytest.mark.parametrize("separation", [0.3, 1.0, 2.0])
def test_the_gaussian_reading_of_a_gaussian(separation):
    rng = np.random.default_rng(5)
    present = rng.random(20_000) < 0.5
    seen = rng.standard_normal(len(present)) + separation * present
    true = bounds.epsilon_of(separation, 1e-5)
    read = bounds.gaussian(seen, present, 1e-5, 1e-3, rng.permutation(len(present)))
    assert 0.6 * true < read < true


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 40.0])
def test_epsilon_of_a_separation_is_that_of_the_gaussian_mechanism(noise):
    from dosimeter.compare.exact import ExactTotal

    total = ExactTotal([(dm.Gaussian(noise), 1)], 1e-6)
    total.add(dm.Gaussian(noise), 1)
    assert bounds.epsilon_of(1 / noise, 1e-6) == pytest.approx(total.epsilon, rel=2e-2)
    assert bounds.epsilon_of(1 / noise, 1e-6) <= total.epsilon


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"canaries": 499}, "canaries must be at least 500, got 499"),
        ({"canaries": 0}, "canaries must"),
        ({"sample_rate": 1.01}, "sample_rate must lie between"),
        ({"sample_rate": 1e-4}, "sample_rate must lie between"),
        ({"sample_rate": math.nan}, "sample_rate must"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must"),
        ({"false_alarm": 0.0}, "false_alarm must"),
        ({"false_alarm": 1.0}, "false_alarm must"),
        ({"steps": 0}, "steps must"),
        ({"seed": -1}, "seed must"),
        ({"gate": lambda: dm.Odometer(1e-6)}, "steps must be given for a gate without a limit"),
        ({"gate": lambda: dm.Filter(0.001, 1e-5)}, "gate must admit at least one step"),
    ],
    ids=_named,
)
def test_bad_input_is_refused_with_the_way_out(options, words):
    with pytest.raises(ValueError, match=words):
        audited(PrivateEngine, **options)


def test_a_gate_that_does_not_say_its_delta_needs_one():
    class Silent:
        epsilon = 0.0

        def admits(self, cost, count=1):
            return True

        def spend(self, cost, count=1):
            pass

    with pytest.raises(ValueError, match="delta must be given"):
        audited(PrivateEngine, gate=Silent, steps=3)
    done = audited(PrivateEngine, gate=Silent, steps=3, delta=1e-5, canaries=500)
    assert done.delta == 1e-5


# -- the command -----------------------------------------------------------------------------

FEW = ["audit", "--canaries", "1000", "--steps", "10", "--false-alarm", "1e-6"]


def test_the_command_says_what_it_found():
    done = CliRunner().invoke(app, FEW)
    assert done.exit_code == 0, done.output
    assert "claimed by the gate" in done.output
    assert "nothing found" in done.output
    assert "VIOLAT" not in done.output


def test_the_command_ends_with_another_code_where_something_is_wrong(monkeypatch):
    broken.DEFECTS["noise x 0.5"][0](monkeypatch)
    done = CliRunner().invoke(app, [*FEW, "--json"])
    assert done.exit_code == 5, done.output
    said = json.loads(done.output)
    assert not said["passed"]
    assert any(words.startswith("noise") for words in said["violations"])
    done = CliRunner().invoke(app, FEW)
    assert done.exit_code == 5
    assert "VIOLATED" in done.output
    assert "VIOLATION: the engine does not do what it charges for" in done.output
