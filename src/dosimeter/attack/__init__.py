# SPDX-License-Identifier: Apache-2.0
"""An audit of training engines: canaries, what each step releases, and what was charged for it."""

from dosimeter.attack.auditing import Audit, audit, fixed

__all__ = ["Audit", "audit", "fixed"]
