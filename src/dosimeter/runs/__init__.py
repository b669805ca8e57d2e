# SPDX-License-Identifier: Apache-2.0
"""Private training from a config file, without writing Python (extra: torch).

`dosimeter.runs.run.train` does it, and `dosimeter.runs.trained.load_run` reads what came of it;
neither is imported here, for both load torch.
"""

from dosimeter.runs.config import Config
from dosimeter.runs.reader import read_config
from dosimeter.runs.starter import STARTER, starter_for

__all__ = ["STARTER", "Config", "read_config", "starter_for"]
