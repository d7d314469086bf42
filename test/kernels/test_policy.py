# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The public API: names, limits, seeds and what a decision leaves behind."""

import gc
import shutil
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import CheckpointError, DeviceError, ObservationError, Policy, RawImage, load_policy
from flashrt_kernels.backend import backend_of
from flashrt_kernels.checkpoint import PiCheckpoint, load_lerobot
from flashrt_kernels.checkpoint.normaliser import MODES, make_normaliser
from flashrt_kernels.models import MODELS
from flashrt_kernels.models.pi05 import Pi05
from flashrt_kernels.names import slots_by_name
from flashrt_kernels.policy import MAX_IMAGE_BYTES
from test.kernels.policies import CPU, DATA, EXTRA, STATE, TINY, TOKENIZER, TOP, WRIST, act, load, picture


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    policy = load()
    yield policy
    policy.close()


def test_attributes(policy: Policy) -> None:
    """What a host reads before it decides."""
    assert (policy.name, policy.cameras) == ("pi05", (TOP, WRIST, EXTRA))
    assert (policy.state_dim, policy.action_dim, policy.horizon) == (5, 5, 6)
    assert policy.action_names is None
    assert policy.state_stats["q99"].shape == (5,)
    assert policy.action_stats["q01"].dtype == np.float32


def test_chunk_is_float32_in_the_shape_of_the_robot(policy: Policy) -> None:
    """Padding of the model never reaches a robot; the times tell where a decision went."""
    chunk = policy.decide(images={TOP: picture(1)}, state=STATE, instruction="go")
    assert chunk.actions.shape == (6, 5)
    assert chunk.actions.dtype == np.float32
    assert np.isfinite(chunk.actions).all()
    assert list(chunk.timings) == ["prepare", "vision", "prefix", "action", "total"]
    parts = sum(value for name, value in chunk.timings.items() if name != "total")
    assert 0 < parts <= chunk.timings["total"]


# ---- cameras ----


@pytest.mark.parametrize("names", [("top", "wrist"), ("video.top", "video.wrist"), (WRIST, TOP)])
def test_camera_names_in_every_form_and_order(policy: Policy, names: tuple[str, str]) -> None:
    """Robots name cameras differently; the order of a dict must not decide which image is which."""
    pictures = {"top": picture(1), "wrist": picture(2)}
    images = {name: pictures[name.rpartition(".")[2]] for name in names}
    np.testing.assert_array_equal(act(policy, images), act(policy))


def test_ambiguous_short_names_are_not_accepted() -> None:
    """Two slots that end alike: only the full names can tell them apart."""
    slots = ("left.rgb", "right.rgb", "right.depth")
    names = slots_by_name(slots, {"front": "left.rgb", "other": "nowhere"})
    assert "rgb" not in names
    assert "video.rgb" not in names
    assert names["depth"] == names["video.depth"] == "right.depth"
    assert names["front"] == "left.rgb"
    assert "other" not in names


def test_R57_unknown_camera_lists_the_slots(policy: Policy) -> None:
    """A typo must not turn into a masked camera."""
    with pytest.raises(ObservationError, match=f"unknown camera 'tpo'.*{TOP}, {WRIST}, {EXTRA}"):
        act(policy, {"tpo": picture(1)})


def test_images_matter_and_belong_to_their_slot(policy: Policy) -> None:
    """Swapped cameras must show, or they would go unnoticed."""
    swapped = act(policy, {TOP: picture(2), WRIST: picture(1)})
    assert np.abs(swapped - act(policy)).max() > 1e-3


def test_R27_missing_camera_is_masked_as_in_training() -> None:
    """Present cameras come first, whichever slot is missing; what its buffer held before does not matter."""
    policy, bound = load(), load()
    bound.bind(["wrist"])
    act(policy)  # leaves images behind in both slots
    alone = act(policy, {WRIST: picture(2)})
    np.testing.assert_allclose(alone, act(bound, {WRIST: picture(2)}), rtol=0, atol=2e-5)
    np.testing.assert_array_equal(alone, act(load(), {WRIST: picture(2)}))


def test_bound_policy_refuses_other_cameras() -> None:
    """What was planned away cannot be seen."""
    policy = load()
    act(policy)
    policy.bind(["video.wrist", "top"])
    assert policy.model_images() == {}  # the last decision went with the old graphs and their arena
    assert policy.bound == (TOP, WRIST)
    assert f"camera: {EXTRA} (not bound: masked)" in policy.description()
    with pytest.raises(ObservationError, match=f"camera 'extra' is not among the bound ones: {TOP}, {WRIST}"):
        act(policy, {"extra": picture(1)})


@pytest.mark.parametrize(
    ("cameras", "words"),
    [([], "at least one"), (["top", TOP], f"repeated.*{TOP}"), (["nose"], "unknown camera 'nose'")],
)
def test_bad_binding_keeps_the_old_one(cameras: list[str], words: str) -> None:
    """The node stays usable after a bad parameter."""
    policy = load()
    with pytest.raises(ObservationError, match=words):
        policy.bind(cameras)
    assert policy.bound == policy.cameras
    assert act(policy).shape == (6, 5)


def test_raw_image_is_the_same_picture(policy: Policy) -> None:
    """A driver's bgra8 with padded rows and an RGB array of the same scene give the same actions."""
    rgb = picture(1)
    bgra = np.full((40, 70, 4), 9, np.uint8)
    bgra[:, :64, :3] = rgb[..., ::-1]
    raw = RawImage(bgra.tobytes(), 40, 64, 280, "bgra8")
    np.testing.assert_array_equal(act(policy, {TOP: raw}), act(policy, {TOP: rgb}))


BAD_IMAGES: dict[str, tuple[Any, str]] = {
    "large": (
        np.zeros((2000, 2000, 3), np.uint8),
        rf"camera 'top': image is 2000×2000 rgb8, 12000000 bytes; the limit is {MAX_IMAGE_BYTES}",
    ),
    "thin": (np.zeros((1, 100, 3), np.uint8), "camera 'top': image is 100×1"),
    "grey": (np.zeros((4, 4), np.uint8), r"camera 'top': image is uint8 \[4, 4\]"),
}


@pytest.mark.parametrize("case", BAD_IMAGES)
def test_bad_image_names_the_camera(policy: Policy, case: str) -> None:
    """With three cameras, which one is it?"""
    image, words = BAD_IMAGES[case]
    with pytest.raises(ObservationError, match=words):
        act(policy, {"top": image})


def test_image_limit_can_be_raised() -> None:
    """A camera above the default limit is a matter of memory only."""
    large = load(max_image_bytes=12_000_000)
    assert act(large, {TOP: np.zeros((2000, 2000, 3), np.uint8)}).shape == (6, 5)


def test_image_limit_can_be_small() -> None:
    """A policy for one small grey camera needs no megabytes of input buffers."""
    small = load(max_image_bytes=64)
    small.warm_up()
    assert act(small, {TOP: RawImage(bytes(64), 8, 8, 0, "mono8")}).shape == (6, 5)
    with pytest.raises(ObservationError, match="8×8 rgb8, 192 bytes; the limit is 64 bytes"):
        act(small, {TOP: np.zeros((8, 8, 3), np.uint8)})


def test_R4_model_images_show_what_the_model_saw(policy: Policy) -> None:
    """The debug topic must show the resized, padded picture under the slot's name."""
    image = np.zeros((40, 64, 3), np.uint8)
    image[:, :, 0] = 200
    act(policy, {WRIST: image})
    seen = policy.model_images()
    assert list(seen) == [WRIST]
    assert seen[WRIST].shape == (56, 56, 3)
    assert (seen[WRIST][28, 28] == (200, 0, 0)).all()
    assert (seen[WRIST][0] == 0).all()  # the border


# ---- robot units ----


@pytest.mark.parametrize("mode", MODES)
def test_every_normalisation_mode_reaches_the_robot(mode: str) -> None:
    """The oracle has QUANTILES only: another mode's factors must come from the checkpoint, too."""
    checkpoint = load_lerobot(TINY, TOKENIZER)
    rng = np.random.default_rng(0)
    low, high = (np.sort(rng.normal(size=(2, 5)), axis=0)).astype(np.float32)  # [5] each
    stats = dict(zip(MODES[mode], (low, high - low if mode == "MEAN_STD" else high), strict=False))
    norm = make_normaliser(TINY, "action", mode, stats, 5, 1e-8)
    changed = replace(checkpoint, action_norm=norm)
    policy = Policy(changed, Pi05(changed, torch.float32, 2, CPU.device), CPU, MAX_IMAGE_BYTES)
    chunk = policy.decide({TOP: picture(1)}, STATE, "go", taps=["actions_normalized_padded"])
    want = norm.unnormalise(chunk.taps["actions_normalized_padded"][:, :5])
    np.testing.assert_allclose(chunk.actions, want, rtol=1e-6, atol=1e-6)


# ---- relative actions ----


def test_R35_relative_actions_start_from_the_state_of_the_observation() -> None:
    """Masked dimensions are offsets to the raw state, the others absolute."""
    checkpoint = load_lerobot(TINY, TOKENIZER)
    mask = np.array([True, False, True, True, False])
    relative = replace(checkpoint, relative_action_mask=mask)
    models = [(c, Pi05(c, torch.float32, 2, CPU.device)) for c in (checkpoint, relative)]
    policies = [Policy(*pair, CPU, MAX_IMAGE_BYTES) for pair in models]
    absolute, moved = (act(policy) for policy in policies)
    want = absolute + np.where(mask, np.array(STATE, np.float32), 0)
    np.testing.assert_allclose(moved, want, rtol=0, atol=1e-6)
    assert "actions [0, 2, 3] are relative" in policies[1].description()


# ---- loading ----

BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "precision": ({"precision": "fp8"}, "precision='fp8'; expected one of fp32, bf16"),
    "steps": ({"num_inference_steps": 0}, "num_inference_steps=0; expected an integer of at least 1"),
    "steps in part": ({"num_inference_steps": 1.5}, "num_inference_steps=1.5; expected an integer"),
    "image limit": ({"max_image_bytes": -1}, "max_image_bytes=-1; expected an integer of at least 1"),
    "tokenizer": ({"tokenizer": None}, "no tokenizer found"),
    "folder": ({"folder": DATA / "nothing"}, "nothing"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_option_that_cannot_be_used_is_refused(case: str) -> None:
    """No silent fallback: a robot that should run on the GPU must not crawl on the CPU."""
    options, words = BAD_OPTIONS[case]
    with pytest.raises(CheckpointError, match=words):
        load_policy(**({"folder": TINY, "tokenizer": TOKENIZER} | options))


@pytest.mark.parametrize("device", ["cuda:77", "abacus", "cuda:x", "cuda:256", "cuda:01", "cuda:²"])
def test_device_that_does_not_exist_is_refused(device: str) -> None:
    """No silent fallback: a robot that should run on the GPU must not crawl on the CPU."""
    with pytest.raises(DeviceError, match=f"device '{device}'"):
        load_policy(TINY, tokenizer=TOKENIZER, device=device)


def test_a_torch_that_cannot_use_the_gpu_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a newcomer knows that something is missing, and neither what nor the command that gets it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(DeviceError, match=r"is a build for the CPU; .* R580 .*make install DEVICE=cuda"):
        backend_of("cuda")
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("flashrt_kernels.cuda.ask_driver.version", lambda: 12040)
    with pytest.raises(DeviceError, match=r"supports CUDA 12.4; 13.0 is needed"):
        backend_of("cuda")
    monkeypatch.setattr("flashrt_kernels.cuda.ask_driver.version", lambda: 0)
    with pytest.raises(DeviceError, match="torch sees no NVIDIA GPU"):
        backend_of("cuda")


def test_contradictions_of_the_checkpoint_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody calls describe() on a robot; a note that only it shows is never read."""
    folder = shutil.copytree(TINY, tmp_path / "tiny")
    file = folder / "policy_preprocessor.json"
    file.write_text(file.read_text().replace('"max_length": 48', '"max_length": 40'))
    load_policy(folder, tokenizer=TOKENIZER)
    (record,) = caplog.records
    assert "max_length = 40 is used, not tokenizer_max_length = 48" in record.getMessage()
    assert str(folder) in record.getMessage()


def test_unknown_policy_type_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of another policy must not be run as Pi0.5."""
    monkeypatch.setattr("flashrt_kernels.loading.MODELS", {"other": MODELS["pi05"]})
    with pytest.raises(CheckpointError, match="policy type 'pi05'; known: other"):
        load()


def test_describe_prints_origin_sizes_statistics_and_plan(
    policy: Policy, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first thing to read when a robot behaves oddly."""
    policy.describe()
    text = capsys.readouterr().out
    for words in (
        str(TINY),
        "lerobot format",
        TOP,
        "56×56",
        "6 steps × 5 actions",
        "QUANTILES",
        "q99",
        "arena:",
    ):
        assert words in text


def test_R54_description_points_at_joints_that_never_moved_in_training(policy: Policy) -> None:
    """Their normalised value is a huge number as soon as the joint moves: the user must know which."""
    checkpoint = policy._checkpoint
    assert isinstance(checkpoint, PiCheckpoint)
    norm = replace(checkpoint.state_norm, zero_range=(1,))
    lines = norm.describe("state", ["pan", "lift", "elbow", "wrist", "gripper"])
    assert [line.split(":")[0].strip() for line in lines if "ZERO RANGE" in line] == ["lift"]


def test_warm_up_reports(policy: Policy) -> None:
    """`configure` shows progress; the first decision is then as fast as the others."""
    lines: list[str] = []
    policy.warm_up(lines.append)
    assert len(lines) == 1
    assert "48 tokens" in lines[0]


def test_R4_warming_up_again_leaves_no_picture_nobody_took(policy: Policy) -> None:
    """The black images of the warm-up must not pass for what the model saw."""
    act(policy)
    policy.warm_up()
    assert policy.model_images() == {}


def test_closed_policy_says_so() -> None:
    """A decision after cleanup is a bug of the caller and must not look like a bad observation."""
    policy = load()
    policy.close()
    policy.close()  # twice does no harm
    bind = partial(policy.bind, ["top"])
    for use in (lambda: act(policy), bind, policy.describe, policy.warm_up, lambda: policy.marks):
        with pytest.raises(RuntimeError, match="policy pi05 is closed"):
            use()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_replaced_checkpoint_does_not_reach_a_running_policy(tmp_path: Path, precision: str) -> None:
    """Mapped weights: a new file copied over the old one would move the robot, a cut one kill the node."""
    folder = shutil.copytree(TINY, tmp_path / "tiny")
    policy = load_policy(folder, tokenizer=TOKENIZER, num_inference_steps=2, precision=precision)
    file = folder / "model.safetensors"
    with file.open("r+b") as weights:
        weights.write(bytes(file.stat().st_size))
    untouched = load(precision=precision)
    np.testing.assert_array_equal(act(policy), act(untouched))
    for either in (policy, untouched):
        either.bind(["top", "wrist"])
    np.testing.assert_array_equal(act(policy), act(untouched))


def test_closing_frees_the_weights() -> None:
    """`cleanup` and `configure` again, for another checkpoint: two full-size ones do not fit."""
    policy = load()
    act(policy)
    held = [weakref.ref(tensor) for tensor in policy._model.weights._made.values()]
    assert held
    policy.close()
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []


def test_importing_the_package_is_light() -> None:
    """A command line that only prints its help must not wait for torch."""
    code = """
import sys, flashrt_kernels
assert "torch" not in sys.modules
flashrt_kernels.load_policy
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=DATA.parent.parent)


def test_decisions_leave_nothing_behind() -> None:
    """A robot decides for days: 100 bytes per decision are the limit."""
    policy = load_policy(TINY, tokenizer=TOKENIZER, num_inference_steps=1)
    images = {TOP: picture(1), WRIST: picture(2)}
    instructions = ("go", "pick up the red block")  # two prompt buckets

    def decide(count: int) -> None:
        for sequence in range(count):
            act(policy, images, sequence=sequence, instruction=instructions[sequence % 2])

    tracemalloc.start()
    try:
        decide(20)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        decide(80)
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert growth <= 80 * 100
