# SPDX-License-Identifier: Apache-2.0
"""Every command of `dosimeter`: help, output for people and for programs, and exit codes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import goldens
from configs import write_config, write_points
from dosimeter.cli.app import app
from dosimeter.ledger.signing import Signer
from golden.plain import Masks, fix_clock, fix_identities, visible, write_key
from saved_runs import history, save_run, save_trained


def run(words: list[str], **more: Any) -> Any:
    """Run a command in a terminal of 100 columns without colours."""
    environment = {"COLUMNS": "100", "NO_COLOR": "1", "FORCE_COLOR": None, "TTY_INTERACTIVE": None}
    return CliRunner().invoke(app, words, prog_name="dosimeter", env=environment, **more)


def commands() -> list[tuple[str, ...]]:
    """Return the words of every command."""
    found, todo = [], [((), typer.main.get_command(app))]
    while todo:
        path, command = todo.pop(0)
        found.append(path)
        children = getattr(command, "commands", {})
        todo += [((*path, name), child) for name, child in children.items()]
    return found


def test_help():
    found = {}
    for path in commands():
        done = run([*path, "--help"])
        found[" ".join(path)] = [done.exit_code, done.stdout.splitlines()]
    found["without words"] = [run([]).exit_code, run(["budget"]).exit_code]
    goldens.compare("commands_help", found)


LEDGER = """
budget list
budget create patients --epsilon 3 --delta 1e-6 --purpose "a trial" --actor root
budget create patients --epsilon 3 --delta 1e-6
budget create patients --epsilon 3 --delta 1e-6 --exist-ok
budget create patients --epsilon 4 --delta 1e-6 --exist-ok
budget create survey --epsilon 3 --delta 1e-6 --menu "gaussian 20" --menu "gaussian 40"
budget create diary --odometer --delta 1e-6 --approx-delta 1e-7
budget create users --epsilon 1 --delta 1e-6 --neighbours "add/remove one user"
budget create visits --epsilon 1 --delta 1e-6 --block 2026-01 --block 2026-02 --block 2026-03
budget create x --epsilon 1 --odometer --delta 1e-6
budget create x --epsilon -1 --delta 1e-6
budget create x --epsilon 1 --delta 1e-6 --menu "magic 1"
budget spend patients --gaussian 20 --purpose "mean age"
budget spend patients --gaussian 20 --count 3 --key k1 --purpose "histogram" --actor bob
budget spend patients --gaussian 20 --count 3 --key k1
budget spend patients --gaussian 30 --key k1
budget spend patients --laplace 30
budget spend patients --sampled-gaussian 0.01,1 --count 100 --purpose training
budget spend patients --sampled-gaussian 0.01,1.5 --count 50 --purpose training
budget spend patients --pure 0.01
budget spend patients --zcdp 0.0001
budget spend patients --approx 0.01,1e-8
budget spend patients --cost '{"kind": "gaussian", "noise_multiplier": 50.0}'
budget spend patients --gaussian 20 --count 10000 --purpose "too much"
budget spend patients --gaussian 0
budget spend patients --gausian 20
budget spend patients
budget spend patients --gaussian 20 --pure 1
budget spend patient --gaussian 20
budget spend diary --approx 0.01,1e-8
budget spend survey --gaussian 20 --count 2
budget spend survey patients --gaussian 40 --purpose joined --key both
budget spend visits --gaussian 20
budget spend visits --gaussian 20 --block 2026-01..2026-02 --purpose "monthly report"
budget spend visits --gaussian 20 --block 2026-09
budget spend users --cost '{"kind": "pure_dp", "epsilon": 0.1, "neighbours": "add/remove one user"}'
budget spend users --gaussian 20
budget list
budget list --most 2
budget list --after survey
budget show patients
budget show diary
budget show survey
budget show visits
budget show visits --block 2026-02
budget show nothing
budget history patients
budget history patients --last 3
budget history patients --each
budget history visits
budget history visits --block 2026-01 --each
budget history patients --out history.csv
budget history patients --out history.html
budget usage patients
budget usage patients survey visits --by purpose
budget usage visits --by person,purpose
budget usage patients --out usage.csv
budget usage visits --by person,purpose --out usage.html
budget usage visits --out usage.docx
budget usage patients --by hour
budget plan patients --noise-multiplier 20
budget plan patients --noise-multiplier 1 --sample-rate 0.01
budget plan patients --steps 100
budget plan survey --gaussian 40
budget plan visits --zcdp 0.005
budget plan patients
budget identity
budget anchor anchors.jsonl --signing-key key.pem
budget anchor anchors.jsonl --signing-key key.pem
budget verify
budget verify patients visits
budget verify patients --anchor anchors.jsonl --public-key {key}
budget verify patients --head {zeros}
budget verify patients --remember memory.json
budget verify patients --remember memory.json
budget verify nothing
budget export patients -o patients.jsonl
budget export patients -o patients.jsonl
budget export visits --block 2026-01
budget export users --move ffffffffffffffffffffffffffffffff -o users.jsonl
budget spend users --gaussian 20
budget import patients.jsonl
budget import patients.jsonl --db other.db
budget list --db other.db
budget import users.jsonl --db other.db
budget import nothing.jsonl
budget close visits --block 2026-01 --purpose over
budget close patients --purpose "the trial is over"
budget close patients
budget spend patients --gaussian 20
budget show patients
budget list
budget list --db nothing.db
budget list --db mysql://host/db
stream create days --every day --epsilon 1 --delta 1e-6 --since 2026-03-03 --purpose "page views"
stream create days --every day --epsilon 1 --delta 1e-6
stream create days --every day --epsilon 1 --delta 1e-6 --exist-ok
stream create hours --every hour --epsilon 1 --delta 1e-6
stream create shards --every shard --epsilon 0.3 --delta 1e-6
stream add shards eu us
stream add days 2026-03-05
stream spend days --gaussian 20 --last 2 --key s1
stream spend days --gaussian 20 --last 2 --key s1
stream spend shards --gaussian 20 --last 2
stream offer days --gaussian 20
stream offer shards --gaussian 20 --count 2
stream show days
stream show days --last 2
stream show shards
stream show nothing
stream spend shards --gaussian 20 --count 9 --last 2
budget usage days
budget history days
token issue ada --grant "spender:visits/*" --days 30
token issue ada --grant "king:visits/*"
token issue "" --grant "reader:*"
token list
token revoke 000000000000
allowance give survey team --to ada --to bob --epsilon 0.5
allowance give survey team --to ada --epsilon 0.5
allowance give nothing team --to ada --epsilon 0.5
allowance list survey
allowance end survey team
allowance end survey team
allowance list survey
serve --rate 0
serve --certificate nothing.pem
serve --host 0.0.0.0
"""

PLANS = """
plan --epsilon 3 --delta 1e-6 --noise-multiplier 30
plan --epsilon 3 --delta 1e-6 --noise-multiplier 1 --sample-rate 0.01
plan --epsilon 3 --delta 1e-6 --steps 1000 --sample-rate 0.01
compare --delta 1e-6 --noise-multiplier 30 --steps 4 --points 2 --menu
compare --delta 1e-6 --sample-rate 0.01 --noise-multiplier 1 --steps 20 --no-menu --csv table.csv
"""

ALONE = """
--version
comparee
budget creat x
--vresion
plan --epsilon 3 --delta 1e-6
plan --epsilon inf --delta 1e-6 --steps 3
plan --epsilon 3 --delta 1 --steps 3
compare --delta 1e-6 --schedule schedule.csv --no-menu --points 2
compare --delta 1e-6 --schedule nothing.csv
compare --delta 1e-6
compare --delta 0 --noise-multiplier 30 --steps 9
train
train nothing.toml
train --init
train --init
train other.toml --init --data points.csv --label sick
train other.toml --init --data points.csv --label nothing
train --data points.csv
train wrong.toml
train private.toml
report run_a run_b --out page.html
report nothing
report run_a --out nothing/page.html
audit --canaries 10
audit --epsilon nan
demo --repeats 0
attack --jsno
"""


COMPARED = """
compare --delta 1e-6 --noise-multiplier 30 --steps 9 --points 3 --no-menu
"""

SLOW = f"""
{PLANS.strip()}
predict trained points.csv --out predictions.csv
predict trained points.csv --out predictions.jsonl --jsonl
predict trained nothing.csv
predict nothing points.csv
predict run_a points.csv
attack
attack --json
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with a ledger to be made and some files to read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOSIMETER_DB", "sqlite:///budgets.db")
    monkeypatch.setenv("DOSIMETER_ACTOR", "ada")
    monkeypatch.delenv("DOSIMETER_TOKEN", raising=False)
    fix_clock(monkeypatch)
    fix_identities(monkeypatch)
    write_points(tmp_path / "points.csv")
    write_config(tmp_path / "wrong.toml", budget={"epsilo": 4.0})
    write_config(tmp_path / "private.toml", budget={"delta": 2.0})
    (tmp_path / "schedule.csv").write_text("steps,sample_rate,noise_multiplier\n3,1,30\n2,0.5,20\n")
    save_run(tmp_path / "run_a")
    save_run(tmp_path / "run_b", history(3))
    write_key(tmp_path / "key.pem")
    return tmp_path


def played(script: str, folder: Path, *, as_json: bool) -> dict[str, Any]:
    """Run the commands of a script one after another; with `--json`, those that have it."""
    known = {"key": Signer.read(folder / "key.pem").public, "zeros": "0" * 64}
    found: dict[str, Any] = {}
    masked = Masks()
    for line in filter(None, script.splitlines()):
        words = [known.get(word.strip("{}"), word) for word in shlex.split(line)]
        path = next(words[:n] for n in (2, 1, 0) if tuple(words[:n]) in ALL)
        has_json = as_json and re.search(r"--json\s", HELP[tuple(path)]) is not None
        done = run([*words, "--json"] if has_json else words)
        said = [
            re.sub(DATED, r"\1(date)", text).replace(str(folder), "(folder)").splitlines()
            for text in (done.stdout, done.stderr)
        ]
        case = next(name for n in range(1, 9) if (name := line + f" ({n})" * (n > 1)) not in found)
        if has_json or not as_json:
            found[case] = masked([done.exit_code, *said])
    return found


DATED = r"(until |\"expires\": \"|(?:valid|expired|revoked) +)\d{4}-\d\d-\d\d"
"""The days on which tokens end, which are counted from today."""

ALL = set(commands())
HELP = {path: run([*path, "--help"]).stdout for path in ALL}


def files(folder: Path, *names: str, most: int | None = None) -> dict[str, list[str]]:
    return {f"file {name}": (folder / name).read_text().splitlines()[:most] for name in names}


def test_outputs_for_people(folder):
    found = played(LEDGER, folder, as_json=False)
    found |= Masks()(files(folder, "history.csv", "usage.csv", "memory.json"))
    goldens.compare("commands_ledger", found)


def test_outputs_for_programs(folder):
    goldens.compare("commands_json", played(LEDGER + COMPARED, folder, as_json=True))


def test_outputs_without_a_ledger(folder):
    found = played(COMPARED + ALONE, folder, as_json=False)
    found |= files(folder, "config.toml", "other.toml")
    found["page of report"] = visible((folder / "page.html").read_text())
    goldens.compare("commands_alone", found)


@pytest.mark.slow
def test_outputs_that_take_long(folder):
    save_trained(folder / "trained", folder / "points.csv")
    found = played(SLOW, folder, as_json=False)
    found |= {f"{case} --json": said for case, said in played(PLANS, folder, as_json=True).items()}
    found |= files(folder, "table.csv", "predictions.csv", "predictions.jsonl", most=5)
    # The noise of an audit is new each time, and so are its numbers.
    audit = "audit --canaries 500 --steps 2 --false-alarm 1e-9".split()
    people, programs = run(audit), run([*audit, "--json"])
    found["audit"] = [people.exit_code, people.stdout.splitlines()[0]]
    found["audit --json"] = [programs.exit_code, names(json.loads(programs.stdout))]
    goldens.compare("commands_slow", found)


def names(value: Any) -> Any:
    """Return the names in a JSON value, without the values."""
    if isinstance(value, dict):
        return {name: names(one) for name, one in sorted(value.items())}
    return [names(value[0])] if isinstance(value, list) and value else type(value).__name__
