# SPDX-License-Identifier: Apache-2.0
"""Per-record gradients in one forward and one backward pass."""

from dosimeter.training.onepass.book import Book
from dosimeter.training.onepass.module import OnePassModule

__all__ = ["Book", "OnePassModule"]
