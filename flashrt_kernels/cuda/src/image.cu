// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// resize_to_patches (flashrt_kernels/image.py). What the camera delivered is read from `info` here, on the device: one
// captured graph serves every image size and pixel format. blockIdx.x: patch; threads: its pixels, so that each colour is
// written in whole lines.
#include "image.cuh"

namespace flashrt {

// The part of the canvas [height, width] that the image covers.
struct Fit {
    int height, width, top, left;
    float down, across;  // rows and columns of the camera per row and column of the canvas
};

struct Canvas {
    int height, width, patch, merge;
    bool at_end;  // the image lies at the end of the rows and columns, not in the middle
};

__device__ __forceinline__ Fit place(const Camera& c, const Canvas& canvas, Size size) {
    int share = canvas.at_end ? 1 : 2;
    Fit f;
    f.height = size.height;
    f.width = size.width;
    f.top = (canvas.height - f.height) / share;
    f.left = (canvas.width - f.width) / share;
    f.down = __fdiv_rn(float(c.rows), float(f.height));
    f.across = __fdiv_rn(float(c.columns), float(f.width));
    return f;
}

__device__ __forceinline__ float3 pixel(const Camera& c, int row, int column) {
    const uint8_t* p = c.pixels + size_t(row) * c.step + size_t(column) * c.format.channels;
    return make_float3(p[c.format.rgb[0]], p[c.format.rgb[1]], p[c.format.rgb[2]]);
}

// torch.lerp: exact at both ends.
__device__ __forceinline__ float lerp(float a, float b, float weight) {
    return weight < 0.5f ? fmaf(weight, b - a, a) : fmaf(weight - 1.0f, b - a, b);
}
__device__ __forceinline__ float3 lerp(float3 a, float3 b, float weight) {
    return make_float3(lerp(a.x, b.x, weight), lerp(a.y, b.y, weight), lerp(a.z, b.z, weight));
}

// Two neighbours along one axis and the weight of the second: row_taps() in Python.
struct Neighbours {
    int first, second;
    float weight;
};
__device__ __forceinline__ Neighbours neighbours(int i, float ratio, int count) {
    float at = fmaxf(float((i + 0.5) * double(ratio) - 0.5), 0.0f);
    int first = min(int(at), count - 1);
    return {first, min(first + 1, count - 1), at - float(first)};
}

__device__ __forceinline__ float3 bilinear(const Camera& c, const Fit& f, int y, int x) {
    Neighbours down = neighbours(y, f.down, c.rows), across = neighbours(x, f.across, c.columns);
    float3 a = pixel(c, down.first, across.first), b = pixel(c, down.first, across.second);
    float3 d = pixel(c, down.second, across.first), e = pixel(c, down.second, across.second);
    return lerp(lerp(a, d, down.weight), lerp(b, e, down.weight), across.weight);
}

// A triangle over `scale` camera pixels to each side of the centre; one pixel where the image is enlarged.
struct Triangle {
    float centre, inverse;
    int first, end;
    __device__ Triangle(int i, float ratio, int count) {
        float scale = fmaxf(ratio, 1.0f);
        centre = __fmul_rn(ratio, i + 0.5f);
        inverse = 1.0f / scale;
        first = max(int(centre - scale + 0.5f), 0);
        end = min(int(centre + scale + 0.5f), count);
    }
    __device__ float weight(int j) const { return fmaxf(1.0f - fabsf((j - centre + 0.5f) * inverse), 0.0f); }
};

// Every pixel under the two triangles, then whole levels, to even at a half: the training code went through uint8.
__device__ __forceinline__ float3 antialias(const Camera& c, const Fit& f, int y, int x) {
    Triangle down(y, f.down, c.rows), across(x, f.across, c.columns);
    float3 sum = make_float3(0.0f, 0.0f, 0.0f);
    float total_down = 0.0f, total_across = 0.0f;
    for (int column = across.first; column < across.end; column++) total_across += across.weight(column);
    for (int row = down.first; row < down.end; row++) {
        float3 line = make_float3(0.0f, 0.0f, 0.0f);
        for (int column = across.first; column < across.end; column++) {
            float weight = across.weight(column);
            float3 p = pixel(c, row, column);
            line = make_float3(fmaf(weight, p.x, line.x), fmaf(weight, p.y, line.y), fmaf(weight, p.z, line.z));
        }
        float weight = down.weight(row);
        total_down += weight;
        sum = make_float3(fmaf(weight, line.x, sum.x), fmaf(weight, line.y, sum.y), fmaf(weight, line.z, sum.z));
    }
    float total = total_down * total_across;
    return make_float3(rintf(sum.x / total), rintf(sum.y / total), rintf(sum.z / total));
}

__device__ __forceinline__ float3 unscaled(const Camera& c, const Fit&, int y, int x) { return pixel(c, y, x); }

// 0 … 255 → −1 … 1, rounded in two steps as the reference does.
__device__ __forceinline__ float centred(float level) { return __fsub_rn(__fmul_rn(level, float(2.0 / 255)), 1.0f); }

// Top left corner of a patch: row by row, or by blocks of merge × merge patches.
__device__ __forceinline__ int2 corner(const Canvas& canvas, int index) {
    int area = canvas.merge * canvas.merge, across = canvas.width / (canvas.patch * canvas.merge);
    int block = index / area, inner = index % area;
    int row = block / across * canvas.merge + inner / canvas.merge;
    int column = block % across * canvas.merge + inner % canvas.merge;
    return make_int2(column * canvas.patch, row * canvas.patch);
}

using Sample = float3 (*)(const Camera&, const Fit&, int, int);

template <Sample SAMPLE>
__device__ __forceinline__ void resize(const uint8_t* pixels, const int* info, void* out, int out_bf16,
                                       const Canvas& canvas) {
    __shared__ Camera camera;
    __shared__ Fit placed;
    wait_for_predecessor();
    if (threadIdx.x == 0) {
        camera = camera_of(pixels, info);
        placed = {};
        if (camera.rows) {  // a missing camera covers nothing
            Size size = {min(camera.rows, canvas.height), min(camera.columns, canvas.width)};
            if (SAMPLE != unscaled) size = fitted_size(camera.rows, camera.columns, canvas.height, canvas.width);
            placed = place(camera, canvas, size);
        }
    }
    __syncthreads();
    int patch = canvas.patch, area = patch * patch, padded = (3 * area + 7) / 8 * 8;
    int2 from = corner(canvas, blockIdx.x);
    size_t row = size_t(blockIdx.x) * padded;
    for (int i = threadIdx.x; i < area; i += blockDim.x) {
        float3 colour = make_float3(-1.0f, -1.0f, -1.0f);
        int y = from.y + i / patch - placed.top, x = from.x + i % patch - placed.left;
        if (y >= 0 && y < placed.height && x >= 0 && x < placed.width) {
            float3 level = SAMPLE(camera, placed, y, x);
            colour = make_float3(centred(level.x), centred(level.y), centred(level.z));
        }
        store_from_float(out, out_bf16, row + i, colour.x);
        store_from_float(out, out_bf16, row + area + i, colour.y);
        store_from_float(out, out_bf16, row + 2 * area + i, colour.z);
    }
    int behind = 3 * area + threadIdx.x;  // fewer than 8
    if (behind < padded) store_from_float(out, out_bf16, row + behind, 0.0f);
    // late: the blocks of the next camera's image would crowd onto the multiprocessors that finish first
    release_successor();
}

}  // namespace flashrt

using namespace flashrt;

extern "C" __global__ void resize_bilinear(const uint8_t* pixels, const int* info, void* out, int out_bf16, int height,
                                           int width, int patch, int merge, int at_end) {
    resize<bilinear>(pixels, info, out, out_bf16, {height, width, patch, merge, at_end != 0});
}

extern "C" __global__ void resize_antialias(const uint8_t* pixels, const int* info, void* out, int out_bf16, int height,
                                            int width, int patch, int merge, int at_end) {
    resize<antialias>(pixels, info, out, out_bf16, {height, width, patch, merge, at_end != 0});
}

extern "C" __global__ void resize_none(const uint8_t* pixels, const int* info, void* out, int out_bf16, int height,
                                       int width, int patch, int merge, int at_end) {
    resize<unscaled>(pixels, info, out, out_bf16, {height, width, patch, merge, at_end != 0});
}
