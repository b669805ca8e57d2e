"""A history is read strictly, and what cannot be trusted never lowers an epsilon."""

import math

import pytest

import dosimeter as dm
from dosimeter.decisions import History
from saved_runs import epoch, history


def test_a_history_is_what_it_was():
    past = History.from_state(history())
    assert History.from_state(past.state()) == past
    assert (past.steps, len(past), past[0].epoch) == (72, 12, 1)


def test_an_epsilon_that_is_not_a_number_is_no_bound():
    past = History.from_state({**history(), "epochs": [epoch(1), epoch(2, epsilon=math.nan)]})
    assert past.epsilon == math.inf


@pytest.mark.parametrize(
    "values",
    [
        {"epsilon": -1e-9},
        {"epsilon": None},
        {"steps": math.inf},
        {"batch_size": 2**53 + 1},
        {"signal": {"name": "x"}},
        {"signal": {**epoch(2)["signal"], "records": 0}},
        {"more": 1},
    ],
)
def test_an_epoch_of_another_form_is_refused(values):
    with pytest.raises(dm.StateError, match="state must be that of a history"):
        History.from_state({**history(), "epochs": [epoch(1, **values)]})


@pytest.mark.parametrize("name", [*history(), "more"])
def test_a_history_of_other_fields_is_refused(name):
    values = history()
    if name in values:
        del values[name]
    else:
        values[name] = 1
    with pytest.raises(dm.StateError, match="state must be that of a history"):
        History.from_state(values)


@pytest.mark.parametrize("name", epoch(1))
def test_an_epoch_that_lacks_a_field_is_refused(name):
    values = epoch(1)
    del values[name]
    with pytest.raises(dm.StateError, match="state must be that of a history"):
        History.from_state({**history(), "epochs": [values]})


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_history_of_another_version_is_refused(version):
    with pytest.raises(dm.StateError, match=f"version {version!r}, not 1"):
        History.from_state({**history(), "version": version})


def test_an_accuracy_that_is_not_a_number_is_none():
    past = History.from_state({**history(), "epochs": [epoch(1, accuracy=math.nan)]})
    assert past.accuracy is None
