"""Every tool and model of diffprivlib pays one budget, before it reads its data."""

import copy
import importlib
import pathlib
import pkgutil
import re
import warnings

import diffprivlib
import numpy as np
import pytest
from diffprivlib import models, tools
from diffprivlib.utils import BudgetError, PrivacyLeakWarning
from sklearn.base import clone

import dosimeter as dm
from dosimeter.integrations import diffprivlib as ours
from dosimeter.ledger import Ledger

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:scipy|sklearn|diffprivlib")

SWAP = dm.Neighbours.REPLACE_ONE_RECORD
rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (200, 3))
Y = (X.sum(axis=1) > 1.5).astype(int)
BOUNDS = (np.zeros(3), np.ones(3))

ONE = {
    name: (lambda tool: lambda **o: tool(X[:, 0], bounds=(0, 1), **o))(getattr(tools, name))
    for name in ("mean", "nanmean", "var", "nanvar", "std", "nanstd", "sum", "nansum", "median")
}
ONE |= {
    "count_nonzero": lambda **o: tools.count_nonzero(Y, **o),
    "quantile": lambda **o: tools.quantile(X[:, 0], 0.3, bounds=(0, 1), **o),
    "percentile": lambda **o: tools.percentile(X[:, 0], 30, bounds=(0, 1), **o),
    "StandardScaler": lambda **o: models.StandardScaler(bounds=BOUNDS, **o).fit(X),
    "LinearRegression": lambda **o: models.LinearRegression(
        bounds_X=BOUNDS, bounds_y=(0, 1), **o
    ).fit(X, X[:, 0]),
    "LogisticRegression": lambda **o: models.LogisticRegression(data_norm=2.0, **o).fit(X, Y),
    "PCA": lambda **o: models.PCA(2, bounds=BOUNDS, data_norm=2.0, **o).fit(X),
}
TWO = {
    "histogram": lambda **o: tools.histogram(X[:, 0], bins=5, range=(0, 1), **o),
    "histogram2d": lambda **o: tools.histogram2d(
        X[:, 0], X[:, 1], bins=3, range=[(0, 1), (0, 1)], **o
    ),
    "histogramdd": lambda **o: tools.histogramdd(X, bins=2, range=[(0, 1)] * 3, **o),
    "GaussianNB": lambda **o: models.GaussianNB(bounds=BOUNDS, **o).fit(X, Y),
    "KMeans": lambda **o: models.KMeans(2, bounds=BOUNDS, **o).fit(X),
    "DecisionTreeClassifier": lambda **o: models.DecisionTreeClassifier(
        bounds=BOUNDS, classes=[0, 1], **o
    ).fit(X, Y),
    "RandomForestClassifier": lambda **o: models.RandomForestClassifier(
        5, bounds=BOUNDS, classes=[0, 1], **o
    ).fit(X, Y),
}


def swapping(epsilon=3.0, delta=1e-6):
    return dm.Filter(epsilon, delta, neighbours=SWAP)


@pytest.mark.parametrize(("name", "runs"), [*((n, 1) for n in ONE), *((n, 2) for n in TWO)])
def test_every_tool_and_model_charges_the_one_budget(name, runs):
    gate, plain = swapping(), swapping()
    {**ONE, **TWO}[name](epsilon=0.3, accountant=ours.Accountant(gate))
    plain.spend(dm.PureDp(0.3, neighbours=SWAP), runs)
    # Parts of one epsilon add up to it, and composing them is no dearer.
    assert gate.tally.pure_epsilon == pytest.approx(0.3 * runs, rel=1e-12)
    assert 0 < gate.epsilon <= plain.epsilon * (1 + 1e-9)


def test_no_tool_and_no_caller_of_the_accountant_is_forgotten():
    assert {*tools.__all__} <= {*ONE, *TWO} if hasattr(tools, "__all__") else True
    public = {n for n, m in vars(models).items() if isinstance(m, type) and hasattr(m, "fit")}
    assert public <= {*ONE, *TWO}
    callers = set()
    for module in pkgutil.walk_packages(diffprivlib.__path__, "diffprivlib."):
        source = pathlib.Path(importlib.import_module(module.name).__file__)
        if re.search(r"accountant\.(check|spend)\(", source.read_text()):
            callers.add(module.name.removeprefix("diffprivlib."))
    assert callers == set(ours._RUNS)


class Watched:
    """Data that notice when they are read."""

    def __init__(self, log):
        self.log = log

    def __array__(self, *arguments, **options):
        self.log.append("read")
        return X[:, 0].copy()


class Spy:
    """A gate that notices when it is spent from."""

    def __init__(self, gate, log):
        self.gate, self.log = gate, log

    def spend(self, cost, count=1):
        self.log.append("spend")
        self.gate.spend(cost, count)

    def __getattr__(self, name):
        return getattr(self.gate, name)


@pytest.mark.parametrize("tool", [tools.mean, tools.var, tools.sum, tools.median])
def test_it_is_paid_before_the_data_are_read(tool):
    log = []
    accountant = ours.Accountant(Spy(swapping(), log))
    tool(Watched(log), epsilon=0.1, bounds=(0, 1), accountant=accountant)
    assert log[0] == "spend"
    assert log.count("spend") == 1
    assert "read" in log


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_a_refusal_comes_first_and_changes_nothing(name):
    gate = swapping(0.2)
    with pytest.raises(BudgetError) as refusal:
        {**ONE, **TWO}[name](epsilon=50.0, accountant=ours.Accountant(gate))
    assert isinstance(refusal.value, dm.BudgetExceeded)
    assert gate.epsilon == 0
    log = []
    with pytest.raises(dm.BudgetExceeded):
        tools.mean(Watched(log), epsilon=5, bounds=(0, 1), accountant=ours.Accountant(gate))
    assert log == []
    tools.mean(X[:, 0], epsilon=0.1, bounds=(0, 1), accountant=ours.Accountant(gate))


def test_a_crash_after_it_was_paid_gives_nothing_back():
    gate = swapping()
    accountant = ours.Accountant(gate)
    with pytest.raises(ValueError, match="n_samples=1"):
        models.KMeans(8, epsilon=0.5, bounds=BOUNDS, accountant=accountant).fit(X[:1])
    assert gate.tally.pure_epsilon == 1.0
    # Neither does the payment of a computation that never came pay for somebody else's.
    accountant.spend(0.5, 0)
    assert gate.tally.pure_epsilon == 1.5


def test_others_who_check_are_told_and_do_not_pay():
    gate = swapping(1.0)
    accountant = ours.Accountant(gate)
    assert accountant.check(0.5, 0)
    with pytest.raises(BudgetError):
        accountant.check(5.0, 0)
    with pytest.raises(dm.BudgetExceeded):
        accountant.spend(5.0, 0)
    assert gate.epsilon == 0
    assert accountant.spend(0.5, 0) is accountant
    assert accountant.spent_budget == [(0.5, 0.0)]
    assert len(accountant) == 1
    assert accountant.total() == (gate.epsilon, 1e-6)
    assert accountant.remaining()[0] == pytest.approx(0.5, abs=1e-9)
    assert gate.admits(dm.PureDp(accountant.remaining(3)[0], neighbours=SWAP), 3)


def test_deltas_are_drawn_from_the_cap_on_failures():
    gate = dm.Filter(1.0, 1e-6, approx_delta=1e-7, neighbours=SWAP)
    ours.Accountant(gate).spend(0.1, 1e-7)
    with pytest.raises(dm.BudgetExceeded, match="approx_delta"):
        ours.Accountant(gate).spend(0.1, 1e-9)


@pytest.mark.parametrize(
    "relation", [dm.Neighbours.ADD_REMOVE_RECORD, dm.Neighbours.ADD_REMOVE_USER]
)
def test_a_relation_that_does_not_fit_is_refused_with_the_way_out(relation):
    gate = dm.Filter(3.0, 1e-6, neighbours=relation)
    accountant = ours.Accountant(gate)
    for name in ("mean", "KMeans", "LogisticRegression"):
        with pytest.raises(ValueError, match=r"neighbours that replace one record.*REPLACE_ONE"):
            {**ONE, **TWO}[name](epsilon=0.1, accountant=accountant)
    assert gate.epsilon == 0
    if relation is dm.Neighbours.ADD_REMOVE_RECORD:
        TWO["histogram"](epsilon=0.1, accountant=accountant)
        assert gate.tally.pure_epsilon == 0.1


def test_what_leaks_is_an_error():
    gate = swapping()
    accountant = ours.Accountant(gate)
    with pytest.raises(PrivacyLeakWarning):
        tools.mean(X[:, 0], epsilon=0.1, accountant=accountant)


@pytest.mark.parametrize("epsilon", [float("nan"), float("inf"), -1.0, 0.0])
def test_bad_epsilons_spend_nothing(epsilon):
    gate = swapping()
    for ask in (ours.Accountant(gate).spend, ours.Accountant(gate).check):
        with pytest.raises(ValueError, match="epsilon must"):
            ask(epsilon, 0)
    assert gate.epsilon == 0


@pytest.mark.parametrize("gate", [None, 1.0, diffprivlib.BudgetAccountant(), dm.PureDp(1.0)])
def test_what_is_no_gate_is_refused(gate):
    with pytest.raises(TypeError, match="gate must be a Filter"):
        ours.Accountant(gate)


def test_copies_share_the_budget():
    gate = swapping()
    model = models.LogisticRegression(epsilon=0.3, data_norm=2.0, accountant=ours.Accountant(gate))
    for each in (clone(model), copy.deepcopy(model), model):
        each.fit(X, Y)
    assert gate.tally.pure_epsilon == pytest.approx(0.9)


def test_as_the_default_and_as_a_context():
    gate = swapping()
    with ours.Accountant(gate) as accountant:
        tools.mean(X[:, 0], epsilon=0.1, bounds=(0, 1))
    assert gate.tally.pure_epsilon == 0.1
    assert diffprivlib.BudgetAccountant.pop_default() is not accountant


def test_a_budget_of_a_ledger(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.create("census", 1.0, 1e-6, neighbours=SWAP)
        for _ in range(3):
            tools.mean(X[:, 0], epsilon=0.1, bounds=(0, 1), accountant=ours.Accountant(budget))
        with pytest.raises(BudgetError, match="census"):
            tools.mean(X[:, 0], epsilon=9, bounds=(0, 1), accountant=ours.Accountant(budget))
        assert [entry.kind for entry in budget.history()].count("spend") == 3
        assert budget.epsilon == pytest.approx(0.3)


def test_many_means_are_cheaper_together_than_by_their_own_rule():
    gate = dm.Filter(1.0, 1e-6, neighbours=SWAP)
    accountant = ours.Accountant(gate)
    with warnings.catch_warnings():
        asked = 0
        while gate.admits(dm.PureDp(0.01, neighbours=SWAP)):
            tools.mean(X[:, 0], epsilon=0.01, bounds=(0, 1), accountant=accountant)
            asked += 1
    theirs = diffprivlib.BudgetAccountant(epsilon=1.0, delta=1e-6, slack=1e-6)
    theirs_asked = 0
    while True:
        try:
            theirs.spend(0.01, 0)
        except BudgetError:
            break
        theirs_asked += 1
    assert asked > theirs_asked
