"""Keeps freed memory instead of giving it back after every step: fresh pages cost more than the arithmetic on them."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGE = 1 << 30


def keep_freed_memory() -> bool:
    """glibc's allocator, told to keep what is freed. False where the C library is another one."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, _LARGE), (_M_TOP_PAD, 1 << 26))
    return all(mallopt(option, value) == 1 for option, value in settings)
