# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The policy that a node's parameters describe; without ROS, for the node and for replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from flashrt_ros.parameters import ConfigError, NodeConfig

if TYPE_CHECKING:
    from flashrt_kernels import Policy


def load_policy_of(config: NodeConfig, progress: Callable[[int, int], None] | None = None) -> Policy:
    """`flashrt_kernels.load_policy` with the parameters of `config`, planned for its cameras.

    progress: called with (bytes of weights in place, bytes in all).

    Raises ConfigError for a checkpoint, tokenizer or device that is refused.
    """
    import torch  # seconds: only whoever loads a policy pays for it

    from flashrt_kernels import CheckpointError, DeviceError, KernelBuildError, ObservationError, load_policy

    if config.cpu_threads:
        torch.set_num_threads(config.cpu_threads)
    load = partial(
        load_policy,
        config.checkpoint,
        device=config.device,
        precision=config.precision or None,
        tokenizer=config.tokenizer or None,
        num_inference_steps=config.num_inference_steps or None,
        progress=progress,
        embodiment=config.embodiment or None,
        fast_tokenizer=config.fast_tokenizer or None,
        delta_actions=config.delta_actions or None,
        head=config.head,
        chunk_size=config.chunk_size or None,
        state_in_prompt=config.state_in_prompt,
        adapt_to_pi=config.adapt_to_pi,
        pad_prompt_state=config.pad_prompt_state or None,
        image_size=config.image_size,
    )
    try:
        try:
            return load(cameras=[camera.slot for camera in config.cameras])
        except ObservationError:  # no such slot: `NodeConfig.check_policy` says what there is
            return load()
    except DeviceError as error:
        raise ConfigError(str(error)) from error
    except KernelBuildError as error:
        raise ConfigError(f"device '{config.device}' cannot be used: {error}") from error
    except (CheckpointError, OSError) as error:
        raise ConfigError(f"checkpoint '{config.checkpoint}' cannot be used: {error}") from error
