// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// resample (flashrt_kernels/image_resample.py): one resize in whole levels, along the rows first. What is resized to
// what is computed here from `info`, on the device. One block makes a tile of TILE × TILE pixels: the weights of its rows
// and columns first, then strips of lines that are resized along the rows only, and of those the sums down the columns.
#include "image.cuh"

#include <type_traits>

namespace flashrt {

constexpr int TILE = 16, STRIP = 32;  // STRIP: lines held at a time
constexpr int TAPS = 256;             // weights of one line: bicubic at MOST_SHRINK (image_resample.py) wants 241
enum Fitting : int { STRETCH = 0, INSIDE = 1, SHORTEST = 2 };

// The part of the camera's image that is resized; what lies outside of the image is black.
struct Window {
    Camera camera;
    int top, left, rows, columns;
};

struct Job {
    int height, width, fitting, edge, square;
    double crop;
    int crop_round;
};

__device__ __forceinline__ int cropped(int length, const Job& job) {
    double part = __dmul_rn(length, job.crop);
    return max(1, job.crop_round ? int(rint(part)) : int(part));
}

// window_of() in Python.
__device__ __forceinline__ Window window_of(const Camera& c, const Job& job) {
    int rows = job.square ? max(c.rows, c.columns) : c.rows;
    int columns = job.square ? max(c.rows, c.columns) : c.columns;
    Window w = {c, 0, 0, rows, columns};
    if (job.crop < 1.0) {
        w.rows = cropped(rows, job);
        w.columns = cropped(columns, job);
    }
    w.top = (rows - w.rows) / 2 - (rows - c.rows) / 2;
    w.left = (columns - w.columns) / 2 - (columns - c.columns) / 2;
    return w;
}

// result_size() in Python; nothing where the result has no pixel or does not fit.
__device__ __forceinline__ Size result_size(const Window& w, const Job& job) {
    Size size = {job.height, job.width};
    if (job.fitting == INSIDE) size = fitted_size(w.rows, w.columns, job.height, job.width);
    if (job.fitting == SHORTEST) {
        double scale = __ddiv_rn(job.edge, min(w.rows, w.columns));
        size = {max(1, int(rint(__dmul_rn(w.rows, scale)))), max(1, int(rint(__dmul_rn(w.columns, scale))))};
    }
    bool fits = size.height <= job.height && size.width <= job.width && min(size.height, size.width) >= 1;
    return fits ? size : Size{0, 0};
}

__device__ __forceinline__ int level(const Window& w, int row, int column, int colour) {
    int y = row + w.top, x = column + w.left;
    if (y < 0 || y >= w.camera.rows || x < 0 || x >= w.camera.columns) return 0;
    return w.camera.pixels[size_t(y) * w.camera.step + size_t(x) * w.camera.format.channels + w.camera.format.rgb[colour]];
}

// ---- weights along one axis, as image_taps.py computes them: doubles, rounded once ----

// Weights of the tile's columns (0 … TILE) and rows (behind them).
template <typename T> struct Weights {
    int first[2 * TILE], count[2 * TILE];
    T of[2 * TILE][TAPS];
};

__device__ __forceinline__ double triangle(double x) { return fmax(1.0 - fabs(x), 0.0); }
__device__ __forceinline__ double cubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

// Pillow: integers that add up to 2²², whole levels after each axis.
template <int SUPPORT, double (*FILTER)(double)> struct Pillow {
    using T = int;
    static constexpr int BITS = 22;

    __device__ static void taps(Weights<int>& weights, int line, int i, int count, int size, bool) {
        double ratio = __ddiv_rn(count, size), scale = fmax(ratio, 1.0), centre = (i + 0.5) * ratio;
        int first = max(int(centre - SUPPORT * scale + 0.5), 0), end = min(int(centre + SUPPORT * scale + 0.5), count);
        int taps = min(end - first, TAPS);
        double total = 0.0;
        for (int k = 0; k < taps; k++) total += FILTER((first + k - centre + 0.5) / scale);
        double one = double(1 << BITS) / total;
        for (int k = 0; k < taps; k++) {
            double weight = FILTER((first + k - centre + 0.5) / scale) * one;
            weights.of[line][k] = int(copysign(floor(fabs(weight) + 0.5), weight));
        }
        weights.first[line] = first;
        weights.count[line] = taps;
    }
    __device__ static int add(int sum, int weight, int value) { return sum + weight * value; }
    __device__ static int rounded(int sum) { return min(max((sum + (1 << (BITS - 1))) >> BITS, 0), 255); }
    __device__ static int line(int sum) { return rounded(sum); }
    __device__ static int pixel(int sum, double, double) { return rounded(sum); }
};

// OpenCV's INTER_AREA: floats, rounded once at the end.
struct Area {
    using T = float;

    __device__ static void taps(Weights<float>& weights, int line, int i, int count, int size, bool whole) {
        double ratio = __ddiv_rn(1.0, __ddiv_rn(size, count));
        double start = __dmul_rn(i, ratio), end = __dadd_rn(start, ratio), cell = fmin(ratio, count - start);
        int last = min(int(floor(end)), count - 1), first = min(int(ceil(start)), last);  // [first, last) is covered
        double before = first - start, behind = fmin(fmin(end - last, 1.0), cell), one = whole ? 1.0 : cell;
        int taps = 0;
        weights.first[line] = first;
        if (before > 1e-3) {
            weights.first[line] = first - 1;
            weights.of[line][taps++] = float(before / one);
        }
        for (int k = first; k < last && taps < TAPS; k++) weights.of[line][taps++] = float(1.0 / one);
        if (behind > 1e-3 && taps < TAPS) weights.of[line][taps++] = float(behind / one);
        weights.count[line] = taps;
    }
    __device__ static float add(float sum, float weight, float value) { return __fadd_rn(sum, __fmul_rn(weight, value)); }
    __device__ static float line(float sum) { return sum; }
    __device__ static int pixel(float sum, double down, double across) {
        if (down == 2.0 && across == 2.0) return int(floorf(sum * 0.25f + 0.5f));
        bool whole = down == floor(down) && across == floor(across);
        return int(rintf(whole ? __fmul_rn(sum, float(1.0 / (down * across))) : sum));
    }
};

// ---- a tile ----

template <typename FILTER>
__device__ __forceinline__ void resize_tile(const Window& w, Size size, int top, int left, uint8_t* out) {
    using T = typename FILTER::T;
    __shared__ Weights<T> weights;
    __shared__ T strip[STRIP][TILE][3];
    double down = __ddiv_rn(1.0, __ddiv_rn(size.height, w.rows)), across = __ddiv_rn(1.0, __ddiv_rn(size.width, w.columns));
    if (threadIdx.x < 2 * TILE) {
        int line = threadIdx.x, i = line % TILE;
        bool whole = down == floor(down) && across == floor(across);
        if (line < TILE) FILTER::taps(weights, line, min(left + i, size.width - 1), w.columns, size.width, whole);
        else FILTER::taps(weights, line, min(top + i, size.height - 1), w.rows, size.height, whole);
    }
    __syncthreads();
    int y = threadIdx.x / TILE, x = threadIdx.x % TILE;
    int first = weights.first[TILE + y], end = first + weights.count[TILE + y];
    int last = weights.first[2 * TILE - 1] + weights.count[2 * TILE - 1];
    T sum[3] = {};
    for (int base = weights.first[TILE]; base < last; base += STRIP) {
        int lines = min(STRIP, last - base);
        for (int i = threadIdx.x; i < lines * TILE; i += TILE * TILE) {
            int row = i / TILE, column = i % TILE, from = weights.first[column];
            T along[3] = {};
            for (int k = 0; k < weights.count[column]; k++)
                for (int colour = 0; colour < 3; colour++)
                    along[colour] = FILTER::add(along[colour], weights.of[column][k], T(level(w, base + row, from + k, colour)));
            for (int colour = 0; colour < 3; colour++) strip[row][column][colour] = FILTER::line(along[colour]);
        }
        __syncthreads();
        for (int row = max(first, base); row < min(end, base + lines); row++)
            for (int colour = 0; colour < 3; colour++)
                sum[colour] = FILTER::add(sum[colour], weights.of[TILE + y][row - first], strip[row - base][x][colour]);
        __syncthreads();
    }
    if (top + y >= size.height || left + x >= size.width) return;
    uint8_t* to = out + (size_t(top + y) * size.width + left + x) * 3;
    for (int colour = 0; colour < 3; colour++) to[colour] = uint8_t(FILTER::pixel(sum[colour], down, across));
}

// linear_neighbours() in Python.
struct Neighbours {
    int first, second, weights[2];
    __device__ Neighbours(int i, int count, int size) {
        double grows = __ddiv_rn(size, count), ratio = __ddiv_rn(1.0, grows);
        first = int(floor(__dmul_rn(i, ratio)));
        float weight = float(__dsub_rn(i + 1, __dmul_rn(first + 1, grows)));
        weight = weight <= 0.0f ? 0.0f : weight - floorf(weight);
        if (first >= count - 1) weight = 0.0f;
        first = min(first, count - 1);
        second = min(first + 1, count - 1);
        weights[0] = int(rintf((1.0f - weight) * 2048.0f));
        weights[1] = int(rintf(weight * 2048.0f));
    }
};

// OpenCV's linear filter, in its integers.
__device__ __forceinline__ void linear_tile(const Window& w, Size size, int top, int left, uint8_t* out) {
    int y = top + threadIdx.x / TILE, x = left + threadIdx.x % TILE;
    if (y >= size.height || x >= size.width) return;
    Neighbours down(y, w.rows, size.height), across(x, w.columns, size.width);
    auto along = [&](int row, int colour) {
        int sum = level(w, row, across.first, colour) * across.weights[0];
        return (sum + level(w, row, across.second, colour) * across.weights[1]) >> 4;
    };
    for (int colour = 0; colour < 3; colour++) {
        int sum = (along(down.first, colour) * down.weights[0]) >> 16;
        sum += (along(down.second, colour) * down.weights[1]) >> 16;
        out[(size_t(y) * size.width + x) * 3 + colour] = uint8_t((sum + 2) >> 2);
    }
}

template <typename FILTER>
__device__ __forceinline__ void resample(const uint8_t* pixels, const int* info, uint8_t* out, int* out_info, const Job& job) {
    __shared__ Window window;
    __shared__ Size size;
    wait_for_predecessor();
    if (threadIdx.x == 0) {
        Camera camera = camera_of(pixels, info);
        size = {0, 0};
        if (camera.rows) {
            window = window_of(camera, job);
            size = result_size(window, job);
        }
        if (blockIdx.x == 0 && blockIdx.y == 0) {
            out_info[0] = size.height;
            out_info[1] = size.width;
            out_info[2] = 3 * size.width;
            out_info[3] = 0;  // rgb8
        }
    }
    __syncthreads();
    int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    if (top < size.height && left < size.width) {
        bool shrinks = size.height <= window.rows && size.width <= window.columns;
        if constexpr (std::is_same_v<FILTER, Area>) {
            if (shrinks) resize_tile<Area>(window, size, top, left, out);
            else linear_tile(window, size, top, left, out);
        } else {
            resize_tile<FILTER>(window, size, top, left, out);
        }
    }
    release_successor();
}

}  // namespace flashrt

using namespace flashrt;

extern "C" __global__ void resample_bilinear(const uint8_t* pixels, const int* info, uint8_t* out, int* out_info, int height,
                                             int width, int fitting, int edge, int square, double crop, int crop_round) {
    resample<Pillow<1, triangle>>(pixels, info, out, out_info, {height, width, fitting, edge, square, crop, crop_round});
}

extern "C" __global__ void resample_bicubic(const uint8_t* pixels, const int* info, uint8_t* out, int* out_info, int height,
                                            int width, int fitting, int edge, int square, double crop, int crop_round) {
    resample<Pillow<2, cubic>>(pixels, info, out, out_info, {height, width, fitting, edge, square, crop, crop_round});
}

extern "C" __global__ void resample_area(const uint8_t* pixels, const int* info, uint8_t* out, int* out_info, int height,
                                         int width, int fitting, int edge, int square, double crop, int crop_round) {
    resample<Area>(pixels, info, out, out_info, {height, width, fitting, edge, square, crop, crop_round});
}
