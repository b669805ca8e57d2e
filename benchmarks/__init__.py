# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: every speed is a ratio or a bound measured in one process and one run."""
