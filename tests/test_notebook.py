"""What people see of budgets and runs in a notebook and at a prompt, and that it adds up."""

import pytest

import dosimeter as dm
from dosimeter.decisions import Epoch, History
from dosimeter.ledger import Ledger
from dosimeter.notebook import card, curve

COST = dm.Gaussian(noise_multiplier=20)


def test_a_filter_says_where_it_stands():
    budget = dm.Filter(epsilon=1, delta=1e-6)
    assert repr(budget) == "Filter(epsilon 0 of 1, delta 1e-06, 0 % used up)"
    budget.spend(COST)
    assert repr(budget) == "Filter(epsilon 0.259 of 1, delta 1e-06, 5.6 % used up)"
    page = budget._repr_html_()
    assert 'aria-valuenow="5.5"' in page
    assert "0.259 of 1" in page


def test_an_odometer_has_no_bar():
    odometer = dm.Odometer(delta=1e-6)
    odometer.spend(COST)
    assert repr(odometer).startswith("Odometer(epsilon 0.")
    assert 'role="meter"' not in odometer._repr_html_()
    assert odometer.spent_share == 0


@pytest.mark.parametrize("runs", [1, 5, 12])
def test_the_share_adds_up_where_epsilon_does_not(runs):
    """After n runs with room for m more, it is n / (n + m) to within one run."""
    budget = dm.Filter(epsilon=1, delta=1e-6)
    budget.spend(COST, runs)
    more = budget.affordable(COST)
    assert runs / (runs + more + 1) <= budget.spent_share <= runs / (runs + more)
    assert budget.spent_share < budget.epsilon / budget.limit


def test_the_share_of_a_full_a_pure_and_a_tiny_spend():
    full = dm.Filter(epsilon=1, delta=1e-6)
    full.spend(dm.PureDp(1.0))
    assert full.spent_share == pytest.approx(1, abs=1e-6)
    half = dm.Filter(epsilon=1, delta=1e-6)
    half.spend(dm.PureDp(0.5))
    assert half.spent_share <= 0.5 * (1 + 1e-6)
    little = dm.Filter(epsilon=1, delta=1e-6)
    little.spend(dm.Gaussian(noise_multiplier=1e9))
    assert 0 < little.spent_share < 1e-9


def test_the_share_of_a_menu_is_that_of_its_quanta():
    budget = dm.Filter(epsilon=2, delta=1e-6, menu=[dm.Gaussian(noise_multiplier=10)])
    cost = dm.Gaussian(noise_multiplier=10)
    most = budget.affordable(cost)
    budget.spend(cost, most // 2)
    assert budget.spent_share <= 0.55
    budget.spend(cost, budget.affordable(cost))
    assert 0.9 < budget.spent_share <= 1


def test_a_budget_and_a_receipt(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("<b>", epsilon=1, delta=1e-6)
        receipt = budget.spend(COST)
        assert repr(budget) == "Budget('<b>', epsilon 0.259 of 1, 5.6 % used up, 2 entries)"
        assert "&lt;b&gt;" in budget._repr_html_()
        assert "<b>" not in budget._repr_html_().replace("<b>budget", "")
        assert repr(receipt).startswith("Receipt(entry 1 of '<b>', 1 x Gaussian(")
        assert "receipt" in receipt._repr_html_()
        clicks = ledger.create_odometer("clicks", delta=1e-6)
        assert "no limit" in repr(clicks)
        assert 'role="meter"' not in clicks._repr_html_()


def epochs(count):
    return [Epoch(n, 6, n / 8, 2.0, 64, 0.9, 0.1, None, 0.1) for n in range(1, count + 1)]


def test_a_history_and_its_page(tmp_path):
    history = History(1000, epochs(12), ended="all 12 epochs were done")
    assert repr(history) == (
        "History(12 epochs, 72 steps on 1,000 records, epsilon 1.5, public accuracy 90.0%, "
        "ended because all 12 epochs were done)"
    )
    assert "<svg" in history._repr_html_()
    assert "<svg" not in History(1000, epochs(1))._repr_html_()
    history.report(tmp_path / "page.html", name="mine & yours")
    page = (tmp_path / "page.html").read_text()
    assert "mine &amp; yours" in page
    assert "1.5" in page


def test_pieces():
    assert curve([1.0]) == curve([]) == curve([0.0, 0.0]) == curve([1.0, float("inf")]) == ""
    assert "&lt;i&gt;" in card("<i>", ["<i>"])
    assert 'aria-valuenow="100.0"' in card("full", [], 7.0)
