"""Dependencies point one way, imports stay light, and the public names are those promised."""

import ast
import pathlib
import subprocess
import sys

import pytest

import dosimeter

SOURCE = pathlib.Path(dosimeter.__file__).parent

MAY_IMPORT = {
    "rdp": {"rdp"},
    "accounting": {"rdp", "accounting"},
    "attack": {"rdp", "accounting", "compare", "training", "attack"},
    "data": {"data"},
    "compare": {"rdp", "accounting", "compare"},
    "ledger": {"rdp", "accounting", "ledger"},
    "decisions": {"rdp", "accounting", "decisions"},
    "training": {"rdp", "accounting", "decisions", "training"},
    "runs": {
        "rdp",
        "accounting",
        "compare",
        "data",
        "decisions",
        "ledger",
        "training",
        "runs",
    },
    "search": {"rdp", "accounting", "search"},
    "integrations": {"rdp", "accounting", "decisions", "training", "integrations"},
    "report": {"decisions", "report"},
    "service": {"rdp", "accounting", "ledger", "report", "service"},
    "cli": {
        "rdp",
        "accounting",
        "attack",
        "compare",
        "data",
        "decisions",
        "ledger",
        "training",
        "runs",
        "report",
        "service",
        "cli",
    },
}
"""What each folder may import of the others; the modules beside the folders are open to all."""


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_dependencies_point_one_way(folder):
    siblings = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    for path in (SOURCE / folder).rglob("*.py"):
        for module in imported(path):
            parts = module.split(".")
            if parts[0] == "dosimeter" and len(parts) > 1 and parts[1] in siblings:
                assert parts[1] in MAY_IMPORT[folder], f"{path.name} imports {module}"


def package(module):
    """The folder that a module stands in, or the folder in it; deeper ones are one room."""
    here, names = SOURCE, []
    for part in module.split(".")[1:3]:
        if not (here / part).is_dir():
            break
        here, names = here / part, [*names, part]
    return ".".join(names)


def test_no_folder_imports_what_imports_it():
    """Folders in folders too; an `__init__` only hands on what its folder holds."""
    arrows = {}
    for path in SOURCE.rglob("*.py"):
        here = ".".join(path.parent.relative_to(SOURCE).parts[:2])
        if here and path.name != "__init__.py":
            found = {
                package(module) for module in imported(path) if module.startswith("dosimeter.")
            }
            arrows.setdefault(here, set()).update(found - {here, ""})

    def reached(folder, seen):
        for other in arrows.get(folder, ()):
            if other not in seen:
                seen.add(other)
                reached(other, seen)
        return seen

    circles = sorted(folder for folder in arrows if folder in reached(folder, set()))
    assert circles == []


def test_import_loads_nothing_heavy():
    heavy = {"torch", "opacus", "matplotlib", "psycopg", "sqlalchemy", "typer", "rich", "scipy"}
    heavy |= {"fastapi", "uvicorn", "httpx"}
    heavy |= {"numpy"}
    code = f"import sys, dosimeter; print(sorted({heavy | {'dp_accounting'}} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_command_loads_only_what_it_needs(tmp_path):
    """Start-up is most of what a command takes: prices, tables and converters are for others."""
    code = (
        "import sys; from dosimeter.ledger import Ledger; from dosimeter.cli import main\n"
        f"Ledger.open({str(tmp_path / 'b.db')!r}).create('b', 1.0, 1e-6)\n"
        f"sys.argv[1:] = ['budget', 'show', 'b', '--db', {str(tmp_path / 'b.db')!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pydantic', 'rich', 'scipy', 'dp_accounting', 'psycopg', 'httpx'}\n"
        "heavy |= {'dosimeter.accounting.priced.menu', 'dosimeter.accounting.calibrate'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("budget      b\n")
    assert out.stdout.splitlines()[-1] == "[]"


def test_training_loads_nothing_heavy_but_torch():
    heavy = {"opacus", "scipy", "mpmath", "dp_accounting", "sklearn", "PIL", "cryptography"}
    code = f"import sys, dosimeter.training; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["dosimeter.decisions", "dosimeter.report", "dosimeter.search"])
def test_what_runs_decide_and_its_report_need_no_torch(module):
    code = f"import sys, {module}; print({{'torch', 'opacus'}} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "module",
    [
        "dosimeter",
        "dosimeter.rdp",
        "dosimeter.accounting",
        "dosimeter.accounting.classic",
        "dosimeter.attack",
        "dosimeter.compare",
        "dosimeter.compare.adversaries",
        "dosimeter.data",
        "dosimeter.decisions",
        "dosimeter.runs",
        "dosimeter.report",
        "dosimeter.search",
        "dosimeter.service",
    ],
)
def test_all_lists_names_that_exist_sorted(module):
    __import__(module)
    loaded = sys.modules[module]
    assert list(loaded.__all__) == sorted(loaded.__all__, key=_ruff_order)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
    with pytest.raises(AttributeError):
        _ = loaded.no_such_name


def _ruff_order(name):
    """Constants, then classes, then functions, as the linter sorts __all__."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_every_source_file_names_its_licence():
    for path in SOURCE.rglob("*.py"):
        assert path.read_text().startswith("# SPDX-License-Identifier: Apache-2.0"), path
