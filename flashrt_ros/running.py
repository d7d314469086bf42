# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node holds between configure and cleanup, and how the policy in it is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flashrt_ros.decision import Decider, DecisionThread
from flashrt_ros.ingest import Ingest
from flashrt_ros.inputs import Inputs
from flashrt_ros.outputs import Outputs
from flashrt_ros.parameters import ConfigError, NodeConfig


@dataclass
class Running:
    """Built by configure in this order, undone by cleanup in reverse."""

    config: NodeConfig
    policy: Any
    ingest: Ingest
    inputs: Inputs
    outputs: Outputs
    decider: Decider
    thread: DecisionThread


def load_policy_of(config: NodeConfig) -> Any:
    """`flashrt_kernels.load_policy` with the node's parameters; a checkpoint that is refused is a
    ConfigError."""
    from flashrt_kernels import load_policy  # imports torch: seconds that only configure needs
    from flashrt_kernels.errors import CheckpointError

    if config.cpu_threads:
        import torch

        torch.set_num_threads(config.cpu_threads)
    try:
        return load_policy(
            config.checkpoint,
            device=config.device,
            precision=config.precision or None,
            tokenizer=config.tokenizer or None,
            num_inference_steps=config.num_inference_steps or None,
        )
    except (CheckpointError, OSError) as error:
        raise ConfigError(f"checkpoint '{config.checkpoint}' cannot be used: {error}") from error


def vector_lines(config: NodeConfig) -> tuple[str, str]:
    """Index ↔ joint of the state and of the action vector, for the start log (R14)."""
    joints = [
        joint.name
        + ("" if (joint.scale, joint.offset) == (1.0, 0.0) else f"·{joint.scale:g}{joint.offset:+g}")
        for joint in config.joints
    ]
    return f"state vector: {_numbered(joints)}", f"action vector: {_numbered(config.action_names)}"


def _numbered(names: Iterable[str]) -> str:
    return ", ".join(f"[{index}] {name}" for index, name in enumerate(names))
