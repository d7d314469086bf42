# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Prints the compute capability of each GPU, a line each, as the driver tells it. Needs nothing else.

A script of its own, for machines whose nvidia-smi is missing or does not know the question (Jetson).
`version` is for importing: it starts nothing in the driver.
"""

import ctypes

MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def version() -> int:
    """What cuDriverGetVersion() returns: 13000 for CUDA 13.0; 0 without a driver."""
    found = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(found))
    except OSError:
        return 0
    return found.value


def main() -> None:
    """Raises OSError without a driver; prints nothing without a GPU."""
    driver = ctypes.CDLL("libcuda.so.1")
    count, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return
    for device in range(count.value):
        pair = []
        for attribute in (MAJOR, MINOR):
            driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            pair.append(str(value.value))
        print(".".join(pair))


if __name__ == "__main__":
    main()
