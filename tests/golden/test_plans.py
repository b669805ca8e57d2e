"""What the planners of a run make of the same settings.

`fit`, `dosimeter train` and the integrations plan by code of their own and disagree in places,
which the case `differ` names. One solver is to take their place, and the golden is recorded again
where it changes a plan. Of what is recorded, this is wrong on purpose:

- At epsilon 0.5 with noise 0.3 not even one step fits. `fit` and `dosimeter train` refuse, while
  Lightning returns the model untrained. All are to refuse, also where noise leaves no signal.
- The same with a filter that `fit` is given: it begins a run that takes no step, and raises then.
- A closed budget of a ledger is refused beforehand only by `dosimeter train`.
- Epsilon 0 is answered by `fit` with the epsilon that it would take, not with what epsilon must be.
- With LowerNoise, `fit` and Lightning look for a noise that the policy does not use, and lose the
  menu; `dosimeter train` begins with the noise of the policy.
- An odometer has a menu under `dosimeter train` only, and a filter without a menu finds its noise
  there only.
- Lightning takes a fraction of an epoch, and no end at all; a plan without an end has 0 steps here.
"""

import pytest

import goldens
from golden.plans import FAST, NEAR, PLANNERS, SLOW, asked, cases, differences


def _compare(name, changes, tmp_path, monkeypatch):
    found = {}
    for number, (case, settings) in enumerate(cases(changes).items()):
        found[case] = {}
        for planner, ask in PLANNERS.items():
            folder = tmp_path / f"{number}-{planner}"
            folder.mkdir()
            found[case][planner] = asked(ask, settings, folder, monkeypatch)
    goldens.compare(name, {**found, "differ": differences(found, list(PLANNERS))}, near=NEAR)


def test_plans(tmp_path, monkeypatch):
    """Compares plans that are priced fast."""
    _compare("plans", FAST, tmp_path, monkeypatch)


@pytest.mark.slow
def test_plans_that_take_longer_to_price(tmp_path, monkeypatch):
    """Compares plans that are not."""
    _compare("plans_slow", SLOW, tmp_path, monkeypatch)
