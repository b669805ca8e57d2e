# SPDX-License-Identifier: Apache-2.0
"""The command line (extra: cli). Commands talk; the library computes."""
