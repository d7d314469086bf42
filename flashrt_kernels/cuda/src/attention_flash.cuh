// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// softmax(q·kᵀ / √head_dim)·v in bf16 on mma.sync: scores never leave registers, softmax is computed as keys come
// (online softmax, Milakov and Gimelshein 2018; tiling as FlashAttention, Dao et al. 2022).
//
// A block takes 64 rows, 16 to a warp. Where registers leave room for only one block of 4 warps on a multiprocessor
// (head_dim 256), two groups of 4 warps take turns at the key tiles and are merged at the end.
#pragma once

#include "attention.cuh"
#include "mma.cuh"

namespace flashrt {

constexpr int ROWS = 64, GROUP_THREADS = 128;

// D: head_dim rounded up to a compiled size. KEYS: keys in a tile. GROUPS: of 4 warps.
template <int D, int KEYS, int GROUPS> struct Flash {
    static constexpr int CHUNKS = D / 8;                     // of 16 bytes in a row
    static constexpr bool SWIZZLED = CHUNKS % 8 == 0;        // else rows are an odd number of chunks apart
    static constexpr int ROW_BYTES = (SWIZZLED ? CHUNKS : CHUNKS | 1) * 16;
    static constexpr int Q_BYTES = ROWS * ROW_BYTES, TILE_BYTES = KEYS * ROW_BYTES;
    static constexpr int SHARED = Q_BYTES + GROUPS * 2 * TILE_BYTES;
    static constexpr bool Q_IN_REGISTERS = D <= 128;

    const Attention& a;
    Rows rows;
    int thread, group, lane, warp;  // thread, warp: within the group
    uint32_t q_tile, k_tile, v_tile;
    uint32_t q[Q_IN_REGISTERS ? D / 16 : 1][4];
    float scores[KEYS / 8][4], sums[D / 8][4];
    float max[2], total[2];  // of rows lane / 4 and lane / 4 + 8

    __device__ __forceinline__ Flash(const Attention& attention, char* memory)
        : a(attention), rows(attention), thread(threadIdx.x % GROUP_THREADS), group(threadIdx.x / GROUP_THREADS),
          lane(threadIdx.x & 31), warp(thread >> 5) {
        q_tile = shared_address(memory);
        k_tile = q_tile + Q_BYTES + group * 2 * TILE_BYTES;
        v_tile = k_tile + TILE_BYTES;
#pragma unroll
        for (auto& row : sums)
#pragma unroll
            for (float& sum : row) sum = 0.0f;
        max[0] = max[1] = -INFINITY;
        total[0] = total[1] = 0.0f;
    }

    static __device__ __forceinline__ uint32_t place(int row, int chunk) {
        return row * ROW_BYTES + (SWIZZLED ? chunk ^ (row & 7) : chunk) * 16;
    }

    __device__ __forceinline__ void copy_q() {
        const bf16* source = static_cast<const bf16*>(a.q);
#pragma unroll 4
        for (int i = threadIdx.x; i < ROWS * CHUNKS; i += GROUPS * GROUP_THREADS) {
            int local = i / CHUNKS, chunk = i % CHUNKS, row = blockIdx.x * ROWS + local;
            const bf16* p = source + rows.offset(a, min(row, rows.count - 1), a.q_stride) + chunk * 8;
            copy_async(q_tile + place(local, chunk), p, row < rows.count && chunk * 8 < a.head_dim);
        }
    }
    // A tile of keys or values from `key0` on; zeros for keys from `end` on and columns beyond the head.
    __device__ __forceinline__ void copy_keys(uint32_t target, const void* array, int key0, int end) {
        constexpr int ACROSS = SWIZZLED ? (CHUNKS < 16 ? CHUNKS : 16) : 2;  // threads in a row
        constexpr int STEP = GROUP_THREADS / ACROSS;                        // a multiple of 8: the swizzle stays
        int row = thread / ACROSS, chunk = thread % ACROSS, limit = end - key0 - row;
        const bf16* source = static_cast<const bf16*>(array) + rows.kv_offset(a) + chunk * 8;
        const char* p = reinterpret_cast<const char*>(source + size_t(key0 + row) * a.kv_stride);
        size_t step = size_t(STEP) * a.kv_stride * sizeof(bf16);
        target += place(row, chunk);
#pragma unroll
        for (int i = 0; i < KEYS; i += STEP) {
            if (KEYS % STEP == 0 || row + i < KEYS) {
#pragma unroll
                for (int j = 0; j < CHUNKS; j += ACROSS)
                    copy_async(target + i * ROW_BYTES + j * 16, p + j * 16, i < limit && (chunk + j) * 8 < a.head_dim);
            }
            asm("add.s64 %0, %0, %1;" : "+l"(p) : "l"(step));  // or the compiler multiplies for each row
        }
        commit_copies();
    }

    __device__ __forceinline__ void load_q(uint32_t (&r)[4], int step) {
        load_matrices(r, q_tile + place(warp * 16 + (lane & 15), step * 2 + (lane >> 4)));
    }

    __device__ __forceinline__ void multiply_keys() {
#pragma unroll
        for (auto& tile : scores)
#pragma unroll
            for (float& score : tile) score = 0.0f;
        int row = (lane & 7) | ((lane >> 4) << 3), chunk = (lane >> 3) & 1;
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
            uint32_t loaded[4];
            if (!Q_IN_REGISTERS) load_q(loaded, step);
            const uint32_t(&left)[4] = Q_IN_REGISTERS ? q[Q_IN_REGISTERS ? step : 0] : loaded;
#pragma unroll
            for (int j = 0; j < KEYS / 16; ++j) {
                uint32_t right[4];
                load_matrices(right, k_tile + place(j * 16 + row, step * 2 + chunk));
                multiply_add(scores[2 * j], left, right[0], right[1]);
                multiply_add(scores[2 * j + 1], left, right[2], right[3]);
            }
        }
    }

    // What this lane's keys of the tile are worth, one bit a key, to `hide` later; loaded early.
    __device__ __forceinline__ void load_seen(bool (&seen)[KEYS / 32], int key0, int end) {
#pragma unroll
        for (int i = 0; i < KEYS / 32; ++i) {
            int key = key0 + i * 32 + lane;
            seen[i] = key < end && (!a.key_valid || a.key_valid[key]);
        }
    }
    __device__ __forceinline__ void hide(const bool (&seen)[KEYS / 32], int key0, int end) {
        uint32_t bits[KEYS / 32], all = 0xffffffffu;
#pragma unroll
        for (int i = 0; i < KEYS / 32; ++i) all &= bits[i] = __ballot_sync(0xffffffffu, seen[i]);
        if (all != 0xffffffffu) {
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int key = j * 8 + 2 * (lane & 3) + (i & 1);
                    if (!(bits[j / 4] >> (key & 31) & 1)) scores[j][i] = -INFINITY;
                }
        }
        if (a.mask) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int row = min(blockIdx.x * ROWS + warp * 16 + (lane >> 2) + (i >> 1) * 8, rows.count - 1);
                const uint8_t* line = a.mask + size_t(row / rows.group) * a.keys;
#pragma unroll
                for (int j = 0; j < KEYS / 8; ++j) {
                    int key = key0 + j * 8 + 2 * (lane & 3) + (i & 1);
                    if (key < end && !line[key]) scores[j][i] = -INFINITY;
                }
            }
        }
    }

    // Scores become weights relative to the new maximum of each row; the sums so far shrink accordingly.
    __device__ __forceinline__ void weigh() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float newest = max[half];
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
                newest = fmaxf(newest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
            newest = fmaxf(newest, __shfl_xor_sync(0xffffffffu, newest, 1));
            newest = fmaxf(newest, __shfl_xor_sync(0xffffffffu, newest, 2));
            float base = newest == -INFINITY ? 0.0f : newest * a.scale;
            float shrink = exp2f(fmaf(max[half], a.scale, -base));
            max[half] = newest;
            total[half] *= shrink;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    scores[j][i] = exp2f(fmaf(scores[j][i], a.scale, -base));
                    total[half] += scores[j][i];
                }
            if (shrink != 1.0f) {
#pragma unroll
                for (int j = 0; j < D / 8; ++j) sums[j][2 * half] *= shrink, sums[j][2 * half + 1] *= shrink;
            }
        }
    }

    __device__ __forceinline__ void multiply_values() {
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step) {
            const float(&p)[4] = scores[2 * step], (&r)[4] = scores[2 * step + 1];
            const uint32_t left[4] = {
                pack_bf16(p[0], p[1]), pack_bf16(p[2], p[3]), pack_bf16(r[0], r[1]), pack_bf16(r[2], r[3])};
#pragma unroll
            for (int j = 0; j < D / 16; ++j) {
                uint32_t right[4];
                load_matrices_transposed(right, v_tile + place(step * 16 + (lane & 15), j * 2 + (lane >> 4)));
                multiply_add(sums[2 * j], left, right[0], right[1]);
                multiply_add(sums[2 * j + 1], left, right[2], right[3]);
            }
        }
    }

    // Every GROUPS-th tile of keys [begin, end).
    __device__ __forceinline__ void accumulate(int begin, int end) {
        wait_for_predecessor();
        release_successor();
        copy_q();
        begin += group * KEYS;
        copy_keys(k_tile, a.k, begin, end);
        copy_keys(v_tile, a.v, begin, end);
        wait_copies<1>();
        __syncthreads();
        if (Q_IN_REGISTERS) {
#pragma unroll
            for (int step = 0; step < D / 16; ++step) load_q(q[Q_IN_REGISTERS ? step : 0], step);
        }
        for (int key0 = begin; key0 < end; key0 += GROUPS * KEYS) {
            bool seen[KEYS / 32];
            load_seen(seen, key0, end);
            if (key0 != begin) {
                wait_copies<0>();
                sync_group(1 + group, GROUP_THREADS);  // these keys are there, the values before have been used
                copy_keys(v_tile, a.v, key0, end);
            }
            multiply_keys();
            hide(seen, key0, end);
            weigh();
            wait_copies<0>();
            sync_group(1 + group, GROUP_THREADS);  // these values are there, the keys have been used
            copy_keys(k_tile, a.k, key0 + GROUPS * KEYS, end);
            multiply_values();
        }
        wait_copies<0>();
#pragma unroll
        for (float& t : total) {
            t += __shfl_xor_sync(0xffffffffu, t, 1);
            t += __shfl_xor_sync(0xffffffffu, t, 2);
        }
    }

    // Adds what the second group found to what the first did, in the first; through the shared memory of the tiles.
    __device__ __forceinline__ void merge_groups(char* memory) {
        float* statistics = reinterpret_cast<float*>(memory) + thread;            // in the place of q
        float* exchange = reinterpret_cast<float*>(memory + Q_BYTES) + thread;    // in the place of keys and values
        static_assert(D / 2 * GROUP_THREADS * 4 <= GROUPS * 2 * TILE_BYTES || GROUPS == 1, "sums fit into the tiles");
        __syncthreads();
        if (group == 1) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                statistics[i * GROUP_THREADS] = max[i];
                statistics[(2 + i) * GROUP_THREADS] = total[i];
            }
#pragma unroll
            for (int i = 0; i < D / 2; ++i) exchange[i * GROUP_THREADS] = sums[i / 4][i % 4];
        }
        __syncthreads();
        if (group == 1) return;
        float mine[2], theirs[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float other = statistics[i * GROUP_THREADS], newest = fmaxf(max[i], other);
            mine[i] = weight_of(max[i] * a.scale, newest * a.scale);
            theirs[i] = weight_of(other * a.scale, newest * a.scale);
            max[i] = newest;
            total[i] = total[i] * mine[i] + statistics[(2 + i) * GROUP_THREADS] * theirs[i];
        }
#pragma unroll
        for (int i = 0; i < D / 2; ++i) {
            float& sum = sums[i / 4][i % 4];
            sum = sum * mine[i % 4 / 2] + exchange[i * GROUP_THREADS] * theirs[i % 4 / 2];
        }
    }

    __device__ __forceinline__ void store() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int row = blockIdx.x * ROWS + warp * 16 + (lane >> 2) + half * 8;
            if (row >= rows.count) continue;
            size_t partial = rows.partial_row(a, row);
            size_t at = a.partial ? partial * a.head_dim : rows.offset(a, row, a.out_stride);
            float scale = a.partial ? 1.0f : total[half] > 0.0f ? 1.0f / total[half] : 0.0f;
            void* target = a.partial ? a.partial : a.out;
            bool is_bf16 = !a.partial && a.out_bf16;
#pragma unroll
            for (int j = 0; j < D / 8; ++j) {
                int column = j * 8 + 2 * (lane & 3);
                float x = sums[j][2 * half] * scale, y = sums[j][2 * half + 1] * scale;
                if (column >= a.head_dim) continue;
                if (is_bf16) *reinterpret_cast<uint32_t*>(static_cast<bf16*>(target) + at + column) = pack_bf16(x, y);
                else *reinterpret_cast<float2*>(static_cast<float*>(target) + at + column) = make_float2(x, y);
            }
            if (a.partial && (lane & 3) == 0) {
                float* statistics = a.partial + size_t(a.parts) * rows.all(a) * a.head_dim + partial * 2;
                *reinterpret_cast<float2*>(statistics) = make_float2(max[half] * a.scale, total[half]);
            }
        }
    }
};

}  // namespace flashrt
