"""A report says what the runs did, no more and nothing smaller, and stands alone."""

from __future__ import annotations

import html.parser
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dosimeter.decisions import History
from dosimeter.errors import StateError
from dosimeter.report import write
from dosimeter.report.runs import read_run
from dosimeter.report.svg import Axes, Point, Trace, draw, ticks
from dosimeter.report.words import promised
from saved_runs import FILTER, ODOMETER, epoch, history, save_run


@pytest.fixture
def report(tmp_path):
    """Writes a page about runs; returns its text."""

    def make(*runs: tuple[dict, dict | None]) -> str:
        folders = [save_run(tmp_path / f"run{i}", *run) for i, run in enumerate(runs)]
        write(folders, tmp_path / "report.html")
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    return make


class Structure(html.parser.HTMLParser):
    """Whether tags that open also close, in order."""

    VOID = ("meta", "link", "br", "path", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID or (tag == "circle" and ("class", "hit") in attrs):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


class TestReading:
    def test_reads_what_a_history_saves(self, tmp_path):
        past = History.from_state(history())
        past.save(tmp_path / "history.json")
        run = read_run(tmp_path)
        assert run.name == tmp_path.name
        assert run.history == past
        assert run.guarantee == past.guarantee

    def test_the_guarantee_names_limit_and_delta_where_nothing_else_does(self, tmp_path):
        run = read_run(save_run(tmp_path / "a", history(guarantee=FILTER)))
        assert (run.kind, run.limit, run.delta) == ("filter", 4.0, 1e-5)
        run = read_run(save_run(tmp_path / "b", history(guarantee=ODOMETER)))
        assert (run.kind, run.limit, run.delta) == ("odometer", None, 1e-5)
        run = read_run(save_run(tmp_path / "c", history(guarantee="")))
        assert (run.kind, run.limit, run.delta) == ("", None, None)

    def test_the_guarantees_of_the_library_are_understood(self, tmp_path):
        import dosimeter as dm

        gates = dm.Filter(3.0, 1e-6), dm.Odometer(1e-6)
        for gate, kind in zip(gates, ("filter", "odometer"), strict=True):
            gate.spend(dm.Gaussian(10))
            said = gate.guarantee()
            past = {**history(guarantee=str(said)), "promise": said.plain()}
            run = read_run(save_run(tmp_path / kind, past))
            assert (run.kind, run.delta, run.seeded) == (kind, 1e-6, False)
            assert run.limit == (3.0 if kind == "filter" else None)
            run = read_run(save_run(tmp_path / kind, {**past, "promise": None}))
            assert (run.kind, run.limit, run.delta) == ("", None, None)
            seeded = {**said.plain(), "seeded": True}
            assert read_run(save_run(tmp_path / kind, {**past, "promise": seeded})).seeded

    def test_a_run_json_knows_better(self, tmp_path):
        about = {"name": "night", "limit": 2.5, "delta": 1e-7, "kind": "ledger", "seed": 0}
        run = read_run(save_run(tmp_path / "a", history(), about))
        assert (run.name, run.limit, run.delta, run.kind) == ("night", 2.5, 1e-7, "ledger")
        assert run.seeded

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"version": 1' + "0" * 5000 + "}"])
    def test_json_that_no_one_can_read_is_refused(self, text, tmp_path):
        folder = save_run(tmp_path / "a")
        (folder / "history.json").write_text(text)
        with pytest.raises(StateError, match=r"history\.json must be JSON"):
            read_run(folder)

    def test_words_that_are_no_text_are_left_out(self, tmp_path):
        run = read_run(save_run(tmp_path / "a", history(), {"note": 5, "in_words": ["a"]}))
        assert (run.note, run.in_words) == (None, None)

    @pytest.mark.parametrize(
        "past",
        [
            {},
            {"version": 1},
            {**history(), "version": 2},
            {**history(), "epochs": 3},
            {**history(), "epochs": [{}]},
            {**history(), "epochs": [epoch(1, epsilon=-1.0)]},
            {**history(), "epochs": [epoch(1, epsilon="much")]},
            {**history(), "epochs": [epoch(1, signal={"name": "x"})]},
            {**history(), "epochs": [epoch(1, steps=math.inf)]},
            {**history(), "epochs": [epoch(1, batch_size=10**400)]},
            {**history(), "records": math.inf},
            {**history(), "records": 10**400},
        ],
    )
    def test_something_else_is_refused(self, past, tmp_path):
        with pytest.raises(StateError, match=r"history\.json must be what History\.save writes"):
            read_run(save_run(tmp_path / "a", past))


def capped() -> dict:
    """A run under a menu: epsilon reads the limit while an eighth of the budget is left."""
    past = history(10)
    for row in past["epochs"]:
        row["epsilon"] = min(4.0, 0.8 * row["epoch"])
        row["spent_share"] = row["epoch"] * 0.0875
    return past


class TestPage:
    def test_says_what_the_runs_did(self, report):
        text = report(
            (history(), {"name": "first", "note": "a note"}),
            (history(8, ODOMETER), {"name": "second"}),
        )
        for said in ("first", "second", "a note", "limit 4", "ε spent", "noise multiplier",
                     "expected records a step", "accuracy on public data, %", "1,437",
                     "the gate refused the next step", "What is guaranteed"):  # fmt: skip
            assert said in text
        assert text.count("<figure>") == 6
        assert text.count("<tr><td>") == 12 + 8
        assert "1,020 ± 20 of 1,437" in text

    def test_the_formal_reading_is_short_and_rounded_up(self, report):
        text = report((history(4, ODOMETER.replace("1.25", "1.2345678901234567")), None))
        assert "Formally: ex-post (1.235, 1e-05)-DP" in text
        assert "1.23456" not in text

    def test_stands_alone(self, report):
        text = report((history(), None))
        parsed = Structure()
        parsed.feed(text)
        assert parsed.open == []
        assert not {"script", "iframe", "img", "object"} & set(parsed.tags)
        for name, value in parsed.attributes:
            if name in ("src", "href", "xlink:href"):
                assert value == "data:,"
        assert "http" not in text.replace("http-equiv", "")
        assert "url(" not in text
        assert "@import" not in text

    def test_runs_cannot_write_markup(self, report):
        evil = "<script>alert(1)</script>\"'&"
        past = {**history(guarantee=evil), "ended": evil}
        past["epochs"][1]["signal"]["name"] = evil
        about = dict.fromkeys(("name", "note", "data", "model", "kind", "in_words"), evil)
        text = report((past, about), (history(), None))
        assert "<script" not in text
        assert "&lt;script&gt;" in text

    def test_without_public_data_there_is_no_accuracy(self, report):
        for missing in (None, math.nan):
            text = report((history(accuracy=missing, loss=None, signal=None), None))
        assert "No public data was given" in text
        assert text.count("<figure>") == 3
        assert "<th>accuracy</th>" not in text
        assert "nan" not in text.lower()

    def test_what_never_changes_is_said_in_a_line_instead_of_a_plot(self, report):
        level = history(noise_multiplier=2.5, batch_size=256)
        text = report((level, None))
        assert text.count("<figure>") == 4
        assert "Noise (noise multiplier), the same at every epoch: 2.5.</p>" in text
        assert "Batch size (expected records a step), the same at every epoch: 256.</p>" in text
        other = history(noise_multiplier=4.0, batch_size=256)
        text = report((level, {"name": "a<b"}), (other, {"name": "c"}), (history(0), None))
        assert "the same at every epoch: a&lt;b 2.5, c 4.</p>" in text
        assert text.count("<figure>") == 4

    def test_what_changes_in_one_run_is_drawn_for_all(self, report):
        level = history(noise_multiplier=2.5, batch_size=256)
        text = report((level, {"name": "level"}), (history(), {"name": "moving"}))
        assert text.count("<figure>") == 6
        assert "the same at every epoch" not in text
        assert "level, epoch 1: noise multiplier 2.5" in text

    def test_an_infinite_epsilon_is_not_drawn_but_said(self, report):
        past = history(6)
        past["epochs"][-1]["epsilon"] = math.inf
        text = report((past, None))
        assert "∞" in text
        assert "Nothing is claimed here" in text
        assert "inf" not in re.findall(r'd="([^"]*)"', text)

    @pytest.mark.parametrize("epochs", [0, 1, 2, 1000])
    def test_runs_of_any_length(self, epochs, report):
        text = report((history(epochs), None), (history(5, ODOMETER), None))
        assert len(text) < 900_000
        assert "NaN" not in text
        assert " nan" not in text

    def test_many_runs(self, report):
        text = report(*[(history(4), {"name": f"run number {i}"}) for i in range(9)])
        assert text.count("<article") == 9

    def test_different_limits_are_each_marked(self, report):
        text = report(
            (history(), {"name": "a", "limit": 2}), (history(), {"name": "b", "limit": 3})
        )
        assert "limit 2, a" in text
        assert "limit 3, b" in text

    def test_the_bar_the_chart_and_the_words_say_the_same_share(self, report):
        text = report((capped(), {"name": "training"}))
        assert '<div style="width:87.5%">' in text
        assert "10 epochs, 60 steps; 87.5 % of the budget used up." in text
        assert "training, epoch 10: share of the budget used up, % 87.5" in text
        assert "<td>87.5 %</td>" in text
        assert text.count("The budget burned") == text.count("Epsilon that can be claimed") == 1

    def test_readings_are_claimed_only_where_the_run_keeps_its_promise(self, report):
        claimed = report((capped(), {"name": "training"}))
        assert claimed.count("Epsilon that can be claimed") == claimed.count("ex-post, for") == 1
        for about in ({"seed": 0}, {"limit": 0.1}):
            text = report((capped(), about))
            assert "Epsilon that can be claimed" not in text
            assert "Epsilon spent" in text

    def test_epsilon_that_stands_still_at_the_limit_is_explained(self, report):
        still = "Where ε stands still at the limit, steps are not free"
        assert report((capped(), None)).count(still) == 1
        assert still not in report((history(), None))
        # Prices are shares where all are of one budget, else epsilons, which need the words too.
        assert report((capped(), None), (history(5, ODOMETER), None)).count(still) == 2
        before = capped()
        for row in before["epochs"]:
            row["spent_share"] = None
        text = report((before, None))
        assert text.count(still) == 2
        assert "<th>used up</th>" not in text

    def test_lines_on_top_of_each_other_take_turns(self, report):
        text = report(*[(capped(), {"name": name}) for name in ("a<b", "b", "c")])
        assert text.count("The same line: a&lt;b, b, c.") == text.count("<figure>")
        second = 'stroke-dasharray="9 18" stroke-dashoffset="-9"'
        assert text.count(second) == text.count("<figure>")
        apart = report((history(), None), (history(accuracy=0.5), None)).split("<figure>")[1]
        assert "stroke-dasharray" not in apart

    def test_tables_are_folded(self, report):
        assert "<details open" not in report((history(), None))

    def test_a_shared_budget_is_not_said_to_begin_at_nothing(self, report):
        assert "before: ε spent 0" in report((history(), None))
        assert "before: ε spent 0" not in report((history(), {"kind": "ledger"}))

    def test_a_run_json_from_before_the_last_epoch_claims_nothing(self, report):
        past = history(8, ODOMETER)
        spent = past["epochs"][-1]["epsilon"]
        claims = {"in_words": "little was spent", "guarantee": "small", "limit": 0.1, "seed": 7}
        text = report((past, {**claims, "name": "night", "epsilon": spent / 2}))
        assert "run.json was written when less had been spent" in text
        assert "little was spent" not in text
        assert "small</p>" not in text
        assert "of 0.1" not in text
        assert "night" in text
        assert "there is no privacy" in text
        text = report((past, {**claims, "limit": 2 * spent, "epsilon": spent}))
        assert "little was spent" in text
        assert "run.json was written" not in text

    def test_a_limit_below_what_was_spent_claims_nothing(self, report):
        past = history(8)
        spent = past["epochs"][-1]["epsilon"]
        claims = {"in_words": "all is well", "kind": "filter", "delta": 1e-5, "epsilon": spent}
        text = report((past, {**claims, "limit": 0.99 * spent}))
        assert "all is well" not in text
        assert "Nothing is claimed here: ε = 1.415 was spent, more than the limit" in text
        assert "Formally" not in text
        text = report((past, {**claims, "limit": spent}))
        assert "all is well" in text
        assert "Formally" in text

    def test_own_words_do_not_cover_an_infinite_epsilon(self, report):
        text = report((history(3, ODOMETER, epsilon=math.inf), {"in_words": "all is well"}))
        assert "all is well" not in text
        assert "Nothing is guaranteed" in text

    def test_names_that_are_no_text_are_shown_by_their_codes(self, report):
        assert "a\\ud800b" in report((history(), {"name": "a\ud800b"}))

    @pytest.mark.parametrize("value", [1e308, 1.7976931348623157e308, 5e-324])
    def test_figures_near_the_end_of_floats(self, value, report):
        past = {**history(3), "epochs": [epoch(i, epsilon=value) for i in (1, 2, 3)]}
        text = report((past, {"limit": value, "kind": "filter"}), (history(), {"limit": 1e308}))
        assert "nan" not in text.lower()
        assert not re.search(r'"[^"]*\binf\b[^"]*"', text)

    def test_a_seed_is_warned_of(self, report):
        assert "there is no privacy" in report((history(), {"seed": 0}))
        assert "there is no privacy" not in report((history(), {"seed": None}))

    def test_needs_no_torch_and_no_plotting_library(self, tmp_path):
        save_run(tmp_path / "run")
        program = (
            "import sys\nfrom pathlib import Path\nfrom dosimeter.report import write\n"
            "write([Path('run')], Path('report.html'))\n"
            "print(sorted({'torch', 'matplotlib', 'rich', 'typer'} & set(sys.modules)))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "[]\n"

    def test_no_runs(self, tmp_path):
        with pytest.raises(ValueError, match="at least one folder"):
            write([], tmp_path / "report.html")


class TestWords:
    def test_a_filter_was_certain_beforehand(self, tmp_path):
        words = promised(read_run(save_run(tmp_path / "a")))
        assert "at most 54.6 (e^4) times the probability, plus 1e-05" in words
        assert "certain before training began" in words

    def test_an_odometer_was_not(self, tmp_path):
        words = promised(read_run(save_run(tmp_path / "a", history(4, ODOMETER))))
        assert "at most 2.72 (e^1) times" in words
        assert "no limit was promised beforehand" in words

    def test_they_name_the_neighbours_of_the_guarantee(self, tmp_path):
        import dosimeter as dm

        had = {
            dm.Neighbours.ADD_REMOVE_RECORD: "had any one record been added or removed,",
            dm.Neighbours.REPLACE_ONE_RECORD: "had any one record been replaced by another,",
            dm.Neighbours.ADD_REMOVE_USER: "had all records of any one user been added or removed,",
        }
        assert set(had) == set(dm.Neighbours)
        for relation, words in had.items():
            promise = dm.Filter(4.0, 1e-5, neighbours=relation).guarantee().plain()
            run = read_run(save_run(tmp_path / relation.name, {**history(), "promise": promise}))
            assert words in promised(run)

    def test_a_shared_budget_counts_everyone(self, tmp_path):
        words = promised(read_run(save_run(tmp_path / "a", history(), {"kind": "ledger"})))
        assert "and of all others that spend from the same budget" in words

    def test_nothing_known_nothing_claimed(self, tmp_path):
        words = promised(read_run(save_run(tmp_path / "a", history(guarantee="trust me"))))
        assert "nothing is claimed" in words

    def test_own_words_come_first(self, tmp_path):
        run = read_run(save_run(tmp_path / "a", history(), {"in_words": "ours"}))
        assert promised(run) == "ours"


@given(
    st.floats(min_value=-1e6, max_value=1e6),
    st.floats(min_value=0, max_value=1e6),
    st.booleans(),
)
def test_ticks_hold_everything_and_are_few(low, width, whole):
    found = ticks(low, low + width, whole=whole)
    slack = 1e-6 * max(1.0, abs(low), width)
    assert found[0] <= low + slack
    assert found[-1] >= low + width - slack
    assert 2 <= len(found) <= 9
    assert found == sorted(set(found))


@pytest.mark.parametrize("last", [0.0045, 7.0, 1234567.0])
def test_the_numbers_under_an_axis_end_with_the_paper(last):
    drawn = draw(
        Axes("s", "ε", whole=False), [Trace(0, (Point(0.0, 1.0, ""), Point(last, 2.0, "")))]
    )
    for x, words in re.findall(r'tick mid" x="([\d.]+)"[^>]*>([^<]+)<', drawn):
        assert float(x) + 3.3 * len(words) <= 400.1


def test_drawing_leaves_out_what_is_not_finite():
    points = (Point(1, math.nan, ""), Point(2, math.inf, ""), Point(3, 1.0, "seen"))
    text = draw(Axes("x", "y"), [Trace(0, points)])
    assert "nan" not in text
    assert "inf" not in text
    assert text.count("<title>") == 1


def test_state_errors_name_the_file(tmp_path: Path):
    folder = save_run(tmp_path / "a")
    (folder / "run.json").write_text(json.dumps([1]))
    with pytest.raises(StateError, match=r"run\.json must hold an object, got list"):
        read_run(folder)
