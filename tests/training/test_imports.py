"""Training stands on the core alone, keeps its promised names, and has one gate."""

import ast
import pathlib

import dosimeter.training as training

FOLDER = pathlib.Path(training.__file__).parent
MAY_IMPORT = {
    "accounting",
    "arguments",
    "decisions",
    "errors",
    "files",
    "rdp",
    "rounding",
    "training",
    "watching",
}


def test_training_imports_only_the_core():
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dosimeter"):
                parts = node.module.split(".")
                names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
                assert set(names) <= MAY_IMPORT, f"{path.name} imports {names}"


def test_training_needs_no_opacus():
    """Not even for the layers that it recognises: the extra does not bring it."""
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            assert not any(name.split(".")[0] == "opacus" for name in names), path.name


def test_the_gate_is_charged_in_one_place():
    """Outside the engine only a signal spends, on the gate it is given: the engine."""
    calls = [
        path.relative_to(FOLDER).as_posix()
        for path in sorted(FOLDER.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "spend"
        and ast.unparse(node.func.value) in {"self._gate", "gate"}
    ]
    assert calls == ["engine.py", "signals.py"]


def test_all_is_sorted_and_exists():
    order = sorted(training.__all__, key=lambda name: (not name[0].isupper(), name))
    assert list(training.__all__) == order
    assert all(hasattr(training, name) for name in training.__all__)
