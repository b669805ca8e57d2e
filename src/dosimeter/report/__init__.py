# SPDX-License-Identifier: Apache-2.0
"""One self-contained HTML page about training runs; needs neither torch nor the network."""

from dosimeter.report.page import write, write_history

__all__ = ["write", "write_history"]
