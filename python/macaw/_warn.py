"""Warnings that point at the line of the caller's which led to them, and not into this package."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """As ``warnings.warn``, for the innermost frame that is none of this package.

    ``skip_file_prefixes`` of ``warnings.warn`` does the same from Python 3.12 on.
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)
