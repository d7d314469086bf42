# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""At run time nothing is compiled: not by nvcc, not by NVRTC, not by the driver."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flashrt_kernels.cuda import manifest
from test.cuda.support import requires_cuda

pytestmark = requires_cuda
ROOT = Path(__file__).resolve().parents[2]

# Loads a policy in each precision and decides. torch may map NVRTC when it is imported: what counts is what
# is mapped after that. The driver maps its own compiler only when it has PTX to translate.
DECIDE = """
import json, re
import torch
import cupy_backends.cuda.libs.nvrtc as nvrtc

COMPILER = r"/(lib(?:nvrtc|nvJitLink|nvvm|nvptxcompiler|nvidia-ptxjitcompiler)[^/\\n]*)"

def compilers():
    return sorted(set(re.findall(COMPILER, open("/proc/self/maps").read())))

def refuse(*arguments, **keywords):
    raise AssertionError("a program was given to NVRTC")

torch.zeros(1, device="cuda").cpu()
before = compilers()
nvrtc.createProgram = nvrtc.compileProgram = refuse

from flashrt_kernels import load_policy
from test.kernels.policies import STATE, TINY, TOKENIZER, picture
for precision in ("bf16", "fp32"):
    policy = load_policy(TINY, device="cuda", precision=precision, tokenizer=TOKENIZER, num_inference_steps=2)
    images = {slot: picture(i) for i, slot in enumerate(policy.cameras)}
    for instruction in ("wave", "pick up the red block and put it into the box on the left " * 2):
        policy.decide(images=images, state=STATE, instruction=instruction)
    policy.close()
print(json.dumps([before, compilers()]))
"""


def test_a_decision_compiles_nothing(tmp_path: Path) -> None:
    """Else the first start on every robot takes a minute and a compiler, or fails where there is none."""
    capability = torch.cuda.get_device_capability()
    if manifest.architecture_for(capability) is None:
        pytest.skip(f"no machine code is made for {capability}: the driver translates PTX there")
    caches = {"CUDA_CACHE_PATH": "cuda", "CUPY_CACHE_DIR": "cupy", "TRITON_CACHE_DIR": "triton"}
    home, nothing = tmp_path / "home", tmp_path / "nothing"
    home.mkdir()
    nothing.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_CACHE")}
    env |= {name: str(home / folder) for name, folder in caches.items()}
    env |= {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PATH": str(nothing), "PYTHONPATH": str(ROOT)}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", DECIDE]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert after == before, "a compiler was loaded into the process"
    written = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
    assert written == [], "something was compiled and cached"
