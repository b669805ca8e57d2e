# SPDX-License-Identifier: Apache-2.0
"""Private training from a config file, without writing Python (extra: torch).

`dosimeter.recipe.run.train` does it; it is not imported here, for it loads torch.
"""

from dosimeter.recipe.config import Config
from dosimeter.recipe.reader import read_config
from dosimeter.recipe.starter import STARTER

__all__ = ["STARTER", "Config", "read_config"]
