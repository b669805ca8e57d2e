"""A folder with a requirements.txt is left to `make test-integrations`, which has its packages."""

import os
import pathlib

HERE = pathlib.Path(__file__).parent

collect_ignore = [
    path.parent.name
    for path in HERE.glob("*/requirements.txt")
    if path.parent.name != os.environ.get("INTEGRATION")
]
