# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Prints the compute capability of each GPU, a line each, as the driver tells it. Needs nothing else.

A script of its own, for machines whose nvidia-smi is missing or does not know the question (Jetson).
"""

import ctypes

MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


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
