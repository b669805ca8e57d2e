# SPDX-License-Identifier: Apache-2.0
"""Lets the reference show `Example:` in docstrings as code, which Griffe does for `Examples:`."""

from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Renames the section while docstrings are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every class, function and module."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
