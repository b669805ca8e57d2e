"""A round of Flower is paid for before its clients are asked, by the code of the page."""

import dp_accounting
import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from integrations.flower.federation import START, Here, inner
from integrations.pages import run_page

USER = dm.Neighbours.ADD_REMOVE_USER
COST = dm.Gaussian(2.0, neighbours=USER)


@pytest.fixture(scope="module")
def rounds():
    """The class of the page, which runs as it stands."""
    return run_page("flower")["PaidRounds"]


@pytest.fixture
def strategy(rounds):
    def make(gate, sampled=4, noise=4.0, clients=6):
        return rounds(inner(sampled), noise, 1.0, sampled, clients=clients, gate=gate)

    return make


def gate(epsilon=4.5, relation=USER):
    return dm.Filter(epsilon, 1e-5, neighbours=relation)


class Spy:
    """A gate that notices how many clients were asked when it was spent from."""

    def __init__(self, gate, grid):
        self.gate, self.grid, self.log = gate, grid, []

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.log.append((cost, count, len(self.grid.asked)))


def test_rounds_are_halted_by_the_budget_and_reach_no_client(strategy):
    budget, grid = gate(), Here()
    assert budget.affordable(COST) == 3
    running = strategy(budget)
    with pytest.raises(dm.BudgetExceeded):
        running.start(grid, START, num_rounds=10)
    assert len(grid.asked) == 3 * 4
    alone = gate()
    alone.spend(COST, 3)
    assert budget.epsilon == pytest.approx(alone.epsilon, rel=1e-9)
    # Flower's result is lost with the exception; the last model that was released is not.
    assert not (running.current_arrays["mean"].numpy() == 0).any()


def test_it_is_paid_once_and_before_any_client_is_asked(strategy):
    grid = Here()
    spy = Spy(dm.Odometer(1e-5, neighbours=USER), grid)
    result = strategy(spy).start(grid, START, num_rounds=3)
    assert spy.log == [(COST, 1, 0), (COST, 1, 4), (COST, 1, 8)]
    assert not (result.arrays["mean"].numpy() == 0).any()


def test_a_round_that_fails_stays_paid_and_pays_for_no_other(strategy):
    grid = Here(broken=[2])
    spy = Spy(dm.Odometer(1e-5, neighbours=USER), grid)
    running = strategy(spy)
    running.start(grid, START, num_rounds=2)
    assert len(spy.log) == 2
    assert running.privacy_spent().num_releases == 1


def test_what_flower_charges_is_too_little_where_another_takes_the_place(strategy):
    """Two federations that differ in one client, all of whom are asked but one."""
    # With client 0: it is sampled, and another one is not. Without: the other one takes its place.
    # Updates of +1 and -1 at clipping norm 1: the sums are apart by 2, the noise is 4.
    pld = dp_accounting.pld.PLDAccountant()
    truth = pld.compose(dp_accounting.GaussianDpEvent(4.0 / 2)).get_epsilon(1e-5)
    budget = gate(100.0)
    running = strategy(budget)
    running.start(Here(), START, num_rounds=1)
    assert running.privacy_spent().epsilon < truth
    assert budget.epsilon >= truth


def test_the_number_of_clients_asked_does_not_tell_how_many_there_are(strategy):
    for clients in (6, 7, 60):
        grid = Here(clients)
        strategy(gate()).start(grid, START, num_rounds=1)
        assert len(grid.asked) == 4


def test_clients_of_other_weight_are_not_released(strategy):
    """Which Flower checks only if it has an accountant."""
    budget, grid = gate(), Here(weights={2: 7})
    running = strategy(budget)
    with pytest.raises(ValueError, match="equal client weights"):
        running.start(grid, START, num_rounds=1)
    assert budget.epsilon > 0
    assert running.privacy_spent().num_releases == 0


@pytest.mark.parametrize("sampled", [0, 6, 7])
def test_all_clients_at_once_show_who_is_there(strategy, sampled):
    with pytest.raises(ValueError, match="sampled must be between 0 and 6"):
        strategy(gate(), sampled=sampled)


@pytest.mark.parametrize("noise", [float("nan"), float("inf"), 0.0, -1.0])
def test_noise_that_is_none_asks_no_client(strategy, noise):
    budget, grid = gate(), Here()
    with pytest.raises(ValueError):  # noqa: PT011  Flower's or ours
        strategy(budget, noise=noise).start(grid, START, num_rounds=1)
    assert (budget.epsilon, grid.asked) == (0, [])


@pytest.mark.parametrize("relation", [each for each in dm.Neighbours if each is not USER])
def test_a_gate_of_another_relation_asks_no_client(strategy, relation):
    budget, grid = gate(relation=relation), Here()
    with pytest.raises(ValueError, match="cost must be for neighbours that"):
        strategy(budget).start(grid, START, num_rounds=1)
    assert (budget.epsilon, grid.asked) == (0, [])


def test_federations_share_a_budget_of_a_ledger(strategy, tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("hospitals", 4.5, 1e-5, neighbours=USER)
        strategy(budget).start(Here(), START, num_rounds=2)
        grid = Here()
        with pytest.raises(dm.BudgetExceeded):
            strategy(budget).start(grid, START, num_rounds=2)
        assert len(grid.asked) == 4
        assert [entry.kind for entry in budget.history()].count("spend") == 3
