// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// What thread blocks of a cluster send to each other (compute capability 9.0).
#pragma once

#include "hopper.cuh"

namespace flashrt {

// As cluster_arrive, where fence.mbarrier_init has published all that the others need.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// Sends four floats to another block of the cluster; `barrier` there counts the 16 bytes.
__device__ __forceinline__ void remote_store4(uint32_t address, uint32_t barrier, const float* d) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            address),
        "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "r"(barrier)
        : "memory");
}

}  // namespace flashrt
