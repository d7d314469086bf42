// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// time_embedding, start_flow and euler_step (flashrt_kernels/flow.py).
#include "common.cuh"

using namespace flashrt;

// One thread per value. fp64, and at load only: its conditions are constants of the checkpoint.
extern "C" __global__ void time_embedding(const float* time, float* out, int steps, int width, double min_period,
                                          double max_period) {
    release_successor();
    wait_for_predecessor();
    int index = blockIdx.x * blockDim.x + threadIdx.x, half = width / 2;
    if (index >= steps * width) return;
    int column = index % width, i = column % half;
    double fraction = half > 1 ? double(i) / (half - 1) : 0.0;
    double period = min_period * pow(max_period / min_period, fraction);
    double angle = double(time[index / width]) * (2.0 * 3.141592653589793 / period);
    out[index] = float(column < half ? sin(angle) : cos(angle));
}

extern "C" __global__ void start_flow(const float* noise, float* out, int count) {
    release_successor();
    wait_for_predecessor();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = noise[i];
}

extern "C" __global__ void euler_step(float* x, const float* velocity, int count, float dt) {
    release_successor();
    wait_for_predecessor();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = fmaf(dt, velocity[i], x[i]);
}
