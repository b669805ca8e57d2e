"""Notebooks: what their cells show, run in turn; `python tests/notebooks.py` writes it in."""

import ast
import contextlib
import io
import json
import pathlib
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples" / "notebooks"


def code_cells(notebook):
    """The cells of code in a notebook, as they are kept in it."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs_of(notebook):
    """What every cell of code shows, in the form that notebooks keep it in."""
    names = {"__name__": "__main__"}
    return [_shown(cell, names, place) for place, cell in enumerate(code_cells(notebook), 1)]


def _shown(cell, names, place):
    *before, last = ast.parse("".join(cell["source"])).body
    printed, found = io.StringIO(), []
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(before, []), f"cell {place}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {place}", "eval"), names)
        else:
            value = exec(compile(ast.Module([last], []), f"cell {place}", "exec"), names)
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        found.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        result = {"data": data, "execution_count": place, "metadata": {}}
        found.append({**result, "output_type": "execute_result"})
    return found


def main():
    """Runs all notebooks and keeps what they show."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            shown = outputs_of(notebook)
        for place, (cell, outputs) in enumerate(zip(code_cells(notebook), shown, strict=True), 1):
            cell |= {"execution_count": place, "outputs": outputs}
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
