# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""openpi's robots: ALOHA's joints and grippers on the whole way, and every robot's names of its cameras."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flashrt_kernels import ObservationError, Policy, load_policy
from flashrt_kernels.checkpoint import PiCheckpoint, load_checkpoint
from flashrt_kernels.checkpoint.openpi_rules import KINDS, TRAININGS
from flashrt_kernels.checkpoint.robot_units import AlohaUnits, RobotUnits
from flashrt_kernels.errors import CheckpointError

from .conftest import Folder
from .damage import CONFIG, WEIGHTS
from .openpi_folder import openpi_folder, write_statistics

PADDED, JOINTS = 16, 14
LIBERO, ALOHA_SIM = "physical-intelligence/libero", "lerobot/aloha_sim_transfer_cube_human"
DELTA = "6,-1,6,-1"
# A state of ALOHA and what openpi 15a9616 (_decode_state) makes of it, in a run on this input.
STATE = [0.1, -0.9, 1.2, -0.3, 0.4, 0.2, 0.0, -0.5, 0.6, -0.7, 0.8, 0.9, -1.1, 0.35]
STATE_OF_POLICY = [0.1, 0.9, -1.2, -0.3, 0.4, 0.2, -1.07986555, -0.5, -0.6, 0.7, 0.8, 0.9, -1.1, -0.35554873]
# openpi's gripper actions 0 and 1 in units of ALOHA (_gripper_from_angular, likewise): a straight line.
CLOSED, OPEN = 0.5533778667449951, 1.026795506477356
SIGNS = np.array([1, -1, -1, 1, 1, 1, 1] * 2)


def load(folder: Folder, **options: Any) -> PiCheckpoint:
    loaded = load_checkpoint(folder.path, **options)
    assert isinstance(loaded, PiCheckpoint)
    return loaded


def two_arms(path: Path, name: str, asset: str = "trossen") -> Folder:
    """A folder of 14 joints and actions, in a policy that is wide enough for them."""
    folder = openpi_folder(path, name, asset)
    shutil.rmtree(folder.path / "assets")
    ramp = np.linspace(-0.3, 0.3, JOINTS)
    stats = {"mean": ramp, "std": 0.5 + ramp, "q01": ramp - 1, "q99": ramp[::-1] + 1.5}
    feature = {statistic: values.tolist() for statistic, values in stats.items()}
    write_statistics(folder.path, asset, {"state": feature, "actions": feature})
    folder.edit_json(CONFIG, "action_dim", value=PADDED)
    folder.edit_tensors(WEIGHTS, widen)
    return folder


def widen(stored: dict[str, torch.Tensor]) -> None:
    """The projections for more numbers: those of the old ones twice."""
    for key in ("action_in_proj.weight", "state_proj.weight"):
        if key in stored:
            stored[key] = torch.cat([stored[key], stored[key].flip(1)], 1)
    for key in ("action_out_proj.weight", "action_out_proj.bias"):
        stored[key] = torch.cat([stored[key], stored[key].flip(0)])


def decide(policy: Policy, state: list[float], camera: str = "cam_high") -> np.ndarray:
    picture = np.random.default_rng(0).integers(0, 256, (40, 64, 3), np.uint8)
    return policy.decide({camera: picture}, state, "uncap the pen", seed=3).actions


# ---- ALOHA ----


@pytest.mark.parametrize("name", ["tiny_pi05", "tiny_pi0"])
def test_alohas_whole_way(tmp_path: Path, name: str) -> None:
    """From the robot's joints to its commands: the prompt, the state token and what offsets are added to are
    the policy's; else a trained arm moves its elbow the wrong way."""
    folder = two_arms(tmp_path / "aloha", name).path
    adapted = load_policy(folder, num_inference_steps=2, delta_actions=DELTA)
    bare = load_policy(folder, num_inference_steps=2, delta_actions=DELTA, adapt_to_pi=False)
    known = np.array(STATE_OF_POLICY, np.float32)
    got, want = decide(adapted, STATE), SIGNS * decide(bare, STATE_OF_POLICY)
    want[:, [6, 13]] = CLOSED + want[:, [6, 13]] * (OPEN - CLOSED)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)
    assert np.abs(got - decide(bare, STATE)).max() > 0.1
    np.testing.assert_allclose(adapted.normalise_state(STATE), bare.normalise_state(known), rtol=0, atol=2e-6)
    with pytest.raises(ObservationError, match=r"state\[6\] is -0\.5, expected .* ALOHA gripper"):
        decide(adapted, [*STATE[:6], -0.5, *STATE[7:]])
    np.testing.assert_array_equal(decide(adapted, STATE), got)


def test_offsets_of_a_known_asset_are_followed_and_said(tmp_path: Path) -> None:
    """ALOHA's joints are offsets in openpi's own training: taken for angles, they fold the arms to zero."""
    folder = two_arms(tmp_path / "aloha", "tiny_pi05")
    mask = load(folder).relative_action_mask
    assert mask is not None
    assert mask.tolist() == [*[True] * 6, False, *[True] * 6, False]
    assert any(note.startswith("delta_actions = 6,-1,6,-1, as openpi trains") for note in load(folder).notes)
    assert load(folder, delta_actions="-14").relative_action_mask is None


@pytest.mark.parametrize(("name", "asset"), [("tiny_pi05", "trossen"), ("tiny_pi0", ALOHA_SIM)])
def test_openpis_own_aloha_is_adapted_and_says_so(tmp_path: Path, name: str, asset: str) -> None:
    """No file says it: the user must be able to read what was assumed, and to contradict."""
    folder = two_arms(tmp_path / "aloha", name, asset)
    loaded = load(folder)
    assert isinstance(loaded.units, AlohaUnits)
    assert [note for note in loaded.notes if note.startswith("adapt_to_pi = True, as openpi trains with")]
    assert any("adapt_to_pi" in line for line in loaded.describe())
    said = load(folder, adapt_to_pi=True)
    assert isinstance(said.units, AlohaUnits)
    without = load(folder, adapt_to_pi=False)
    assert type(without.units) is RobotUnits
    assert not any("adapt_to_pi" in line for line in (*said.notes, *without.notes, *without.describe()))


def test_an_aloha_of_the_users_own(tmp_path: Path) -> None:
    """openpi names the statistics of a fine-tuning after its data set: nothing tells that it is an ALOHA."""
    folder = two_arms(tmp_path / "own", "tiny_pi05", "someone/pens")
    loaded = load(folder)
    assert type(loaded.units) is RobotUnits
    assert [note for note in loaded.notes if note.endswith("adapt_to_pi = True if so")]
    said = load(folder, adapt_to_pi=True)
    assert isinstance(said.units, AlohaUnits)
    assert not any("adapt_to_pi" in note for note in said.notes)


def test_other_numbers_of_joints_are_no_alohas(tmp_path: Path) -> None:
    """Signs of an arm of seven, put on five joints, turn the wrong ones."""
    folder = openpi_folder(tmp_path / "aloha", "tiny_pi05", "trossen")
    loaded = load(folder)
    assert type(loaded.units) is RobotUnits
    assert [note for note in loaded.notes if note.startswith("adapt_to_pi = False, which takes 14 joints")]
    with pytest.raises(
        CheckpointError, match="adapt_to_pi is True, but the statistics are of 5 joints and 5"
    ):
        load(folder, adapt_to_pi=True)


def test_adapt_to_pi_means_nothing_elsewhere(folder: Folder) -> None:
    """A switch that does nothing leaves the user believing that it did."""
    with pytest.raises(CheckpointError, match="adapt_to_pi is False, but this is a folder of LeRobot"):
        load(folder, adapt_to_pi=False)


# ---- cameras ----

NAMES = {
    "trossen": ("base_0_rgb", {"cam_high": 0, "cam_left_wrist": 1, "cam_right_wrist": 2}),
    ALOHA_SIM: ("base_0_rgb", {"cam_high": 0, "top": 0}),
    "droid": ("base_0_rgb", {"observation/exterior_image_1_left": 0, "observation/wrist_image_left": 1}),
    LIBERO: ("base_0_rgb", {"observation/image": 0, "observation/wrist_image": 1, "wrist_image": 1}),
}


@pytest.mark.parametrize("asset", NAMES)
def test_cameras_by_the_names_of_openpis_robots(tmp_path: Path, asset: str) -> None:
    """Who comes from openpi's client sends these names; a wrist picture in another slot blinds the policy."""
    name = "tiny_pi0" if asset == ALOHA_SIM else "tiny_pi05"
    folder = openpi_folder(tmp_path / "robot", name, asset)
    loaded = load(folder)
    first, names = NAMES[asset]
    assert loaded.cameras[0] == f"observation.images.{first}"
    for robot, place in names.items():
        assert loaded.camera_names[robot] == loaded.cameras[place]
    assert any("other camera names" in line for line in loaded.describe())


def test_a_decision_takes_the_robots_name(tmp_path: Path) -> None:
    """The name works where it is used, not only in a table."""
    folder = openpi_folder(tmp_path / "robot", "tiny_pi05", LIBERO).path
    policy = load_policy(folder, num_inference_steps=2)
    for name, slot in (("image", "base_0_rgb"), ("observation/wrist_image", "left_wrist_0_rgb")):
        by_name = decide(policy, [0.0] * 5, name)
        assert list(policy.model_images()) == [f"observation.images.{slot}"]
        np.testing.assert_array_equal(decide(policy, [0.0] * 5, slot), by_name)


def test_pi0_fasts_slots_are_those_of_the_robot() -> None:
    """DroidInputs puts the wrist third and a black picture between, LiberoInputs the wrist second."""
    droid, libero = TRAININGS["pi0_fast", "droid"], TRAININGS["pi0_fast", LIBERO]
    slots = droid.cameras or KINDS["pi0_fast"].cameras
    assert slots.index(droid.camera_names["observation/wrist_image_left"]) == 2
    assert slots.index(droid.camera_names["observation/exterior_image_1_left"]) == 0
    assert libero.cameras is not None
    assert libero.cameras.index(libero.camera_names["observation/wrist_image"]) == 1


@pytest.mark.parametrize("key", TRAININGS)
def test_names_lead_to_slots_of_the_policy(key: tuple[str, str]) -> None:
    """A name that leads nowhere is silently none: the picture would be refused on the robot."""
    training = TRAININGS[key]
    slots = training.cameras or KINDS[key[0]].cameras
    assert training.camera_names
    assert set(training.camera_names.values()) <= set(slots)
    assert slots[0] in training.camera_names.values()


@pytest.mark.parametrize(
    ("asset", "words"),
    [("droid", "joint velocities"), ("physical-intelligence/libero", "end effector"), ("trossen", "")],
)
def test_what_openpis_robots_are_told(tmp_path: Path, asset: str, words: str) -> None:
    """Velocities or steps that go out as positions move an arm to where it must not be."""
    loaded = load(openpi_folder(tmp_path / "robot", "tiny_pi0", asset))
    assert words in loaded.not_positions
    assert bool(loaded.not_positions) == bool(words)
