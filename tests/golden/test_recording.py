"""A golden finds what changed, and nothing else."""

import pytest

import goldens


def test_compare_names_changed_missing_and_new_cases(tmp_path, monkeypatch):
    monkeypatch.setattr(goldens, "DATA", tmp_path)
    monkeypatch.setenv("RECORD_GOLDENS", "1")
    goldens.compare("example", {"same": 1, "changed": (1.5).hex(), "missing": [1, 2]})
    monkeypatch.delenv("RECORD_GOLDENS")

    goldens.compare("example", {"same": 1, "changed": (1.5).hex(), "missing": [1, 2]})
    with pytest.raises(AssertionError, match="3 of 3 cases") as failure:
        goldens.compare("example", {"same": 1, "changed": (1.25).hex(), "too": None})
    assert all(word in str(failure.value) for word in ("changed", "missing", "too"))


def test_compare_reads_recorded_names_through_the_renames(tmp_path, monkeypatch):
    monkeypatch.setattr(goldens, "DATA", tmp_path)
    monkeypatch.setenv("RECORD_GOLDENS", "1")
    goldens.compare("example", {"case": {"old_name": 1}})
    monkeypatch.delenv("RECORD_GOLDENS")

    monkeypatch.setattr(goldens, "RENAMES", {'"old_name"': '"new_name"'})
    goldens.compare("example", {"case": {"new_name": 1}})
