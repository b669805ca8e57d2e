"""The blocks of code on a page; needs nothing, so that every environment can read pages."""

import re

_BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


def blocks(page, *languages):
    """The code of a page, and what it is said to print."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(code, said) for language, code, said in found if language in languages]
