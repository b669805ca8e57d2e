"""Calibration: what it names is enough, hardly more than enough, and the two are inverses."""

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

import dosimeter as dm
from dosimeter.accounting import calibrate
from dosimeter.accounting.calibrate import calibrated

DELTA = 1e-6


def exact(rate, noise, steps):
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    event = GaussianDpEvent(noise)
    accountant.compose(event if rate == 1 else PoissonSampledDpEvent(rate, event), steps)
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(3.0, 1.0, 10), (0.5, 1.0, 1), (3.0, 0.05, 100)]
)
def test_the_least_noise_is_enough_and_hardly_more(epsilon, rate, steps):
    noise = dm.noise_for(epsilon, DELTA, steps=steps, sample_rate=rate)
    step = dm.Gaussian(noise) if rate == 1 else dm.SampledGaussian(rate, noise)
    assert dm.Filter(epsilon, DELTA, menu=[step]).affordable(step) >= steps
    assert 0.95 * epsilon <= exact(rate, noise, steps) <= epsilon
    back = dm.epsilon_for(noise, DELTA, steps=steps, sample_rate=rate)
    assert back == pytest.approx(epsilon, rel=0.01)
    assert dm.Filter(back, DELTA, menu=[step]).admits(step, steps)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": float("nan")}, "epsilon must"),
        ({"delta": 1.0}, "delta must lie"),
        ({"steps": 0}, "steps must be"),
        ({"sample_rate": 1.5}, "sample_rate must"),
        ({"epsilon": 1e-3, "steps": 10**12}, "epsilon must"),
    ],
)
def test_what_no_noise_is_for_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        dm.noise_for(**{"epsilon": 1.0, "delta": DELTA, "steps": 5, **change})


def test_a_budget_that_can_have_no_menu_is_calibrated_without_one():
    told = []
    noise, gate = calibrated(
        5e-4,
        1e-2,
        menu=lambda noise: [dm.Gaussian(noise)],
        planned=lambda noise: [(dm.Gaussian(noise), 2)],
        note=told.append,
    )
    assert gate.menu is None
    assert gate.affordable(dm.Gaussian(noise)) == 2
    assert "epsilon must lie between" in str(told[0])


def test_a_plan_is_priced_in_the_order_of_its_menu(monkeypatch):
    """With the readings of a signal as the nominal mechanism a menu was never enough for a plan."""
    seen, step, reading = [], dm.SampledGaussian(1 / 3, 4.6), dm.Gaussian(20.0)

    def sold(epsilon, delta, menu, planned, noise):
        seen.append(menu(noise))
        return noise, dm.Filter(epsilon, delta)

    monkeypatch.setattr(calibrate, "_sold", sold)
    calibrate.menu_noise(
        4.0, 1e-5, menu=lambda _: [step, reading], planned=lambda _: [(reading, 10), (step, 100)]
    )
    assert seen == [[step, reading]]
