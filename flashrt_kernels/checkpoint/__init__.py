# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Checkpoints: strict readers, key maps, normalisation statistics, tokenizer."""

from flashrt_kernels.checkpoint.checkpoint import Checkpoint
from flashrt_kernels.checkpoint.config import PolicyConfig
from flashrt_kernels.checkpoint.dims import GemmaDims, ModelDims, VisionDims
from flashrt_kernels.checkpoint.fast import ActionTokens, FastTokenizer
from flashrt_kernels.checkpoint.lerobot import load_lerobot
from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.checkpoint.origins import ORIGINS, load_checkpoint
from flashrt_kernels.checkpoint.pi import DecodingRule, PiCheckpoint, PromptRule
from flashrt_kernels.checkpoint.smolvla import SmolVLACheckpoint, load_smolvla
from flashrt_kernels.checkpoint.tokenizer import Tokenizer

__all__ = [
    "ORIGINS",
    "ActionTokens",
    "Checkpoint",
    "DecodingRule",
    "FastTokenizer",
    "GemmaDims",
    "ModelDims",
    "Normaliser",
    "PiCheckpoint",
    "PolicyConfig",
    "PromptRule",
    "SmolVLACheckpoint",
    "Tokenizer",
    "VisionDims",
    "load_checkpoint",
    "load_lerobot",
    "load_smolvla",
]
