"""A config is read strictly, and whatever is wrong with it is named with its line."""

import dataclasses
import pathlib
import re
import tomllib
import typing

import pytest

from configs import BASE, changed, write_config
from dosimeter.runs import STARTER, Config, read_config
from dosimeter.runs.reader import config_from, first_difference


def test_a_config_is_read_with_its_defaults():
    config = config_from(changed(training={"epochs": 7}))
    assert config.training.epochs == 7
    assert config.training.max_grad_norm is None
    assert config.data.bounds == [0, 100]
    assert config.policy is None


def test_the_starter_is_a_config():
    assert config_from(tomllib.loads(STARTER)).data.kind == "digits"


def test_every_line_that_the_starter_comments_out_is_known():
    """Each commented key is a key of its table, so that nobody is led astray."""
    base = {**BASE, "policy": {"kind": "adapt_noise"}}
    table, seen, named = "", 0, set()
    for line in STARTER.splitlines():
        text = line.removeprefix("# ")
        if text.startswith("["):
            table = text[1 : text.index("]")]
        elif line.startswith("# ") and " = " in text:
            key = text.split(" = ")[0].strip()
            with pytest.raises(ValueError, match=rf"{table}\.{key} must be (?!a known)"):
                config_from({**base, table: {**base.get(table, {}), key: {}}})
            seen += 1
        named.add((table, text.split(" = ")[0].strip()))
    assert seen > 10
    for name, hint in typing.get_type_hints(Config).items():
        made = next(k for k in (typing.get_args(hint) or (hint,)) if k is not type(None))
        assert {(name, field.name) for field in dataclasses.fields(made)} <= named


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"training": {"epoch": 3}}, "training.epoch must be a known name.*mean 'epochs'"),
        ({"trainin": {"epochs": 3}}, "trainin must be a known name.*did you mean 'training'"),
        ({"data": {"zzz": 1}}, "known are kind, path, label"),
        ({"training": {"epochs": "ten"}}, "training.epochs must be a whole number, got 'ten'"),
        ({"training": {"epochs": True}}, "must be a whole number, got True"),
        ({"training": {"epochs": 2.5}}, "must be a whole number, got 2.5"),
        ({"training": {"epochs": 0}}, "must be between 1 and"),
        ({"data": {"kind": "cvs"}}, "one of csv, .* got 'cvs'; did you mean 'csv'"),
        ({"data": {"classes": [1, 2]}}, "a whole number or a list of text"),
        ({"data": {"bounds": 3}}, "data.bounds must be a list of numbers or a list of pairs or"),
        ({"data": {"bounds": [1, 0]}}, "data.bounds must be a lower and a higher"),
        ({"data": {"public_share": 1.5}}, "strictly between 0 and 1"),
        ({"data": {"public_share": 0.5, "public_test": True}}, "left out together"),
        ({"model": {"kind": "transformer"}}, "linear, mlp.*'module:factory', got"),
        ({"model": {"hidden": 3}}, "left out for linear"),
        ({"model": {"kind": "features"}}, "model.extractor must be given"),
        ({"budget": {"epsilon": -1}}, "budget.epsilon must be finite and > 0"),
        ({"budget": {"delta": 1.0}}, "budget.delta must lie strictly"),
        ({"budget": {"kind": "odometer"}}, "budget.epsilon must be left out"),
        ({"budget": {"kind": "ledger", "epsilon": None, "delta": None}}, "budget.name must be"),
        ({"budget": {"ledger": "x.db"}}, "budget.ledger must be left out"),
        ({"training": {"momentum": 1.0}}, "training.momentum must"),
        ({"signal": {}}, "signal must come with policy or stop"),
        ({"stop": {}}, "stop must hold a target or patience"),
        ({"policy": {"kind": "adapt_noise", "start": 2.0}}, "policy.start must be left out"),
        ({"policy": {"kind": "adapt_batch", "step": 1.5}}, "policy.step must be a whole"),
        ({"policy": {"kind": "lower_noise"}}, "noise_multiplier must be left out"),
        ({"stop": {"patience": 1}, "signal": {"public": True}}, "signal.public must be false"),
        ({"output": None}, r"output must be given, got no table \[output\]"),
        ({"budget": {"kind": "odometer", "epsilon": None},
          "training": {"noise_multiplier": None}}, "noise_multiplier must be given"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path, changes, said):
    path = tmp_path / "config.toml"
    write_config(path, **changes)
    with pytest.raises(ValueError, match=said) as caught:
        read_config(path)
    message = str(caught.value)
    key = message.split(": ")[1].split(" ")[0].split(".")[-1]
    there = [line.strip("[ ").startswith(key) for line in path.read_text().splitlines()]
    if any(there):
        assert there[int(message.split(", line ")[1].split(":")[0]) - 1]
    else:
        assert message.startswith(f"{path}: ")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.0", "0"])
@pytest.mark.parametrize(
    ("table", "key"),
    [("budget", "epsilon"), ("budget", "delta"), ("training", "noise_multiplier"),
     ("training", "max_grad_norm"), ("training", "learning_rate"), ("data", "public_share")],
)  # fmt: skip
def test_hostile_numbers_are_refused(tmp_path, table, key, value):
    path = tmp_path / "config.toml"
    write_config(path, **{table: {key: 0.123456}})
    path.write_text(path.read_text().replace("0.123456", value))
    with pytest.raises(ValueError, match=f"{table}.{key} must"):
        read_config(path)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_hostile_steps_of_a_policy_are_refused(tmp_path, value):
    path = tmp_path / "config.toml"
    write_config(path, policy={"kind": "adapt_batch", "step": 0.123456})
    path.write_text(path.read_text().replace("0.123456", value))
    with pytest.raises(ValueError, match=r"policy.step must"):
        read_config(path)


def test_files_that_are_no_config(tmp_path):
    with pytest.raises(FileNotFoundError, match="dosimeter train --init"):
        read_config(tmp_path / "none.toml")
    path = tmp_path / "config.toml"
    path.write_text("[data\nkind = 1")
    with pytest.raises(ValueError, match=r"must be TOML: .*line 1"):
        read_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="UTF-8"):
        read_config(path)
    path.write_text("data = 3")
    with pytest.raises(ValueError, match=r"line 1: data must be a table.*\[data\]"):
        read_config(path)


def test_the_first_key_that_changed_is_named():
    assert first_difference(BASE, BASE) is None
    assert first_difference(BASE, changed(training={"epochs": 4})) == (
        "training.epochs must stay 3, got 4"
    )
    assert first_difference(BASE, changed(stop={"patience": 2})) == (
        "stop.patience must stay left out, got 2"
    )
    assert first_difference(BASE, changed(data={"bounds": None})) == (
        "data.bounds must stay [0, 100], got left out"
    )


def test_paths_are_told_as_they_were_given():
    with pytest.raises(FileNotFoundError, match=r"'no/such.toml'"):
        read_config(pathlib.Path("no/such.toml"))


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "train-without-python.md"


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_tables_in_the_documentation_are_read(block):
    config_from({**BASE, **tomllib.loads(block)})
