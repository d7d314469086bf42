// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// What the image kernels share: pixels as the camera delivers them, the size that keeps their aspect ratio.
#pragma once

#include "common.cuh"

namespace flashrt {

struct PixelFormat {
    int channels, rgb[3];
};
// By code: rgb8, bgr8, rgba8, bgra8, mono8 (flashrt_kernels/pixels.py).
__constant__ PixelFormat FORMATS[5] = {{3, {0, 1, 2}}, {3, {2, 1, 0}}, {4, {0, 1, 2}}, {4, {2, 1, 0}}, {1, {0, 0, 0}}};

struct Camera {
    const uint8_t* pixels;
    PixelFormat format;
    int rows, columns, step;
};

struct Size {
    int height, width;
};

// As fitted_size() in Python: doubles, cut to whole pixels.
__device__ __forceinline__ Size fitted_size(int rows, int columns, int height, int width) {
    double by_width = __ddiv_rn(columns, width), by_height = __ddiv_rn(rows, height);
    double ratio = fmax(by_width, by_height);
    return {int(__ddiv_rn(rows, ratio)), int(__ddiv_rn(columns, ratio))};
}

// What `info` says: [rows, columns, bytes per row, format code].
__device__ __forceinline__ Camera camera_of(const uint8_t* pixels, const int* info) {
    return {pixels, FORMATS[min(max(info[3], 0), 4)], info[0], info[1], info[2]};
}

}  // namespace flashrt
