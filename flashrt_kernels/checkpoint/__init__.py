# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Checkpoints: strict readers, key maps, normalisation statistics, tokenizer."""

from flashrt_kernels.checkpoint.config import PolicyConfig
from flashrt_kernels.checkpoint.dims import GemmaDims, ModelDims, VisionDims
from flashrt_kernels.checkpoint.lerobot import load_lerobot
from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.checkpoint.pi import PiCheckpoint, PromptRule
from flashrt_kernels.checkpoint.tokenizer import Tokenizer


def load_checkpoint(folder, *, tokenizer=None, embodiment=None, fast_tokenizer=None, scan=True, **reading):  # type: ignore
    return load_lerobot(folder, tokenizer, fast_tokenizer=fast_tokenizer, scan=scan, **reading)


__all__ = [
    "GemmaDims",
    "ModelDims",
    "Normaliser",
    "PiCheckpoint",
    "PolicyConfig",
    "PromptRule",
    "Tokenizer",
    "VisionDims",
    "load_checkpoint",
    "load_lerobot",
]
