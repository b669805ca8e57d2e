# SPDX-License-Identifier: Apache-2.0
"""One budget under the libraries that people already use: one file for each, named after it.

Each translates what its library asks for into a cost, spends it from a gate before the data are
touched, and lets the library go on. Nothing is imported until its own file is.
"""
