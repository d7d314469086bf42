# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""`load_policy`: from a checkpoint folder to a policy that is ready to decide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from flashrt_kernels.backend import Backend, backend_of
from flashrt_kernels.checkpoint import load_checkpoint
from flashrt_kernels.checkpoint.checkpoint import Checkpoint
from flashrt_kernels.errors import CheckpointError
from flashrt_kernels.models import MODELS
from flashrt_kernels.policy import MAX_IMAGE_BYTES, Policy

log = logging.getLogger(__name__)

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
DEVICES = {"cpu": "fp32", "cuda": "bf16"}  # kind of device → default precision


def load_policy(
    folder: str | Path,
    device: str | Backend = "cpu",
    precision: str | None = None,
    tokenizer: str | Path | None = None,
    num_inference_steps: int | None = None,
    *,
    embodiment: str | None = None,
    fast_tokenizer: str | Path | None = None,
    head: str = "full",
    rename: Mapping[str, str] | None = None,
    cameras: Iterable[str] | None = None,
    max_image_bytes: int = MAX_IMAGE_BYTES,
    progress: Callable[[int, int], None] | None = None,
    **reading: Any,
) -> Policy:
    """Load a checkpoint folder, plan every graph, and return a policy that is ready to decide.

    device: `cpu`, `cuda`, `cuda:1`, or a backend (`flashrt_kernels.cuda.backend.CudaBackend` with options).
    precision: `fp32` or `bf16`; None is the device's default.
    tokenizer: file or folder, for checkpoints without one.
    num_inference_steps: denoising steps; None is the checkpoint's own.
    embodiment: the robot, where a checkpoint knows several: GR00T's tag, openpi's asset id.
    fast_tokenizer: folder of the FAST action tokenizer, for Pi0-FAST checkpoints without one.
    head: `full`; `actions` lets Pi0-FAST choose among the words of an action chunk only, which is faster and
    another text wherever the policy would have left that form.
    rename: the robot's names → the checkpoint's, of cameras and groups of the state.
    cameras: as `Policy.bind`, which would plan a second time; None: all.
    max_image_bytes: largest image that a camera may deliver; fixes the size of the input buffers.
    progress: called with (bytes of weights in place, bytes in all).
    reading: what files do not say, see load_checkpoint: `pad_prompt_state` (LeRobot), `delta_actions`,
    `chunk_size`, `state_in_prompt`, `adapt_to_pi` (openpi), `image_size` (GR00T).

    Logs the origin and what the checkpoint's files contradict each other in. Raises CheckpointError naming
    file and key, or the option that cannot be used; ObservationError as `Policy.bind`; DeviceError where
    there is no such GPU; KernelBuildError where its kernels have to be built first.
    """
    backend = backend_of(device) if isinstance(device, str) else device
    kind = backend.device.type
    precision = precision or DEVICES[kind]
    if precision not in PRECISIONS:
        raise CheckpointError(f"precision={precision!r}; expected one of {', '.join(PRECISIONS)}")
    checkpoint = load_checkpoint(
        Path(folder),
        tokenizer=tokenizer,
        embodiment=embodiment,
        fast_tokenizer=fast_tokenizer,
        scan=kind == "cpu",
        **reading,
    )
    if checkpoint.policy_type not in MODELS:
        raise CheckpointError(f"{folder}: policy type {checkpoint.policy_type!r}; known: {', '.join(MODELS)}")
    steps = denoising_steps(checkpoint, num_inference_steps)
    if type(max_image_bytes) is not int or max_image_bytes < 1:
        raise CheckpointError(f"max_image_bytes={max_image_bytes!r}; expected an integer of at least 1")
    if head not in ("full", "actions") or (head != "full" and checkpoint.policy_type != "pi0_fast"):
        raise CheckpointError(f"head={head!r}; expected full, or actions for pi0_fast")
    options = {} if head == "full" else {"head": head}
    log.info("%s: %s, %s", folder, checkpoint.policy_type, checkpoint.origin)
    for note in checkpoint.notes:
        log.warning("%s: %s", folder, note)
    try:
        model = MODELS[checkpoint.policy_type](
            checkpoint, PRECISIONS[precision], steps, backend.device, progress, **options
        )
    except BaseException:
        backend.release()
        raise
    return Policy(checkpoint, model, backend, max_image_bytes, cameras, rename)


def denoising_steps(checkpoint: Checkpoint, wanted: int | None) -> int | None:
    """Steps of the policy; None where it has none. Raises CheckpointError for what cannot be."""
    if checkpoint.denoising_steps is None:
        if wanted is not None:
            raise CheckpointError(
                f"num_inference_steps={wanted!r}: {checkpoint.policy_type} has no such steps; leave it out"
            )
        return None
    steps = checkpoint.denoising_steps if wanted is None else wanted
    if type(steps) is not int or steps < 1:
        raise CheckpointError(f"num_inference_steps={steps!r}; expected an integer of at least 1")
    return steps
