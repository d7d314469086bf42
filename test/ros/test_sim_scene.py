# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the simulated cameras show. When these fail, the demo's policy looks at pictures that mean nothing."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from flashrt_ros.sim.arm import JOINTS, ArmPose, arm_pose
from flashrt_ros.sim.scene import FRONT_CAMERA, HEIGHT, OBJECTS, WIDTH, Box, Camera, Renderer, wrist_camera

HOME = np.array([joint.home for joint in JOINTS])  # [D]
ASIDE = HOME + np.array([0.6, 0.0, 0.0, 0.0])
View = Callable[[np.ndarray, ArmPose], None]
RED, BLUE, YELLOW = OBJECTS[0], OBJECTS[1], OBJECTS[2]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


def draw(view: View, positions: Sequence[float] | np.ndarray) -> np.ndarray:
    image = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)  # [480, 640, 3]
    view(image, arm_pose(np.asarray(positions)))
    return image


def colour_at(image: np.ndarray, camera: Camera, point: Sequence[float] | np.ndarray) -> np.ndarray:
    (x, y), depth = camera.project(np.asarray(point, dtype=float))
    assert depth > 0
    return image[int(y), int(x)].astype(int)


@pytest.mark.parametrize("box", [RED, BLUE, YELLOW])
def test_front_view_shows_every_object_where_the_camera_model_puts_it(renderer: Renderer, box: Box) -> None:
    """Lost otherwise: an instruction names an object that is not in the picture, or in the wrong colour."""
    seen = colour_at(draw(renderer.front, HOME), FRONT_CAMERA, box.centre)
    assert np.argmax(seen) == np.argmax(box.colour)
    assert np.ptp(seen) > 60  # a strong colour, not the table


def test_wrist_view_looks_down_on_what_is_below_the_gripper(renderer: Renderer) -> None:
    """Lost otherwise: the wrist camera does not move with the arm."""
    ahead = arm_pose(HOME)
    aside = arm_pose(ASIDE)
    top = np.add(RED.centre, (0.0, 0.0, 0.025))
    for pose, positions in ((ahead, HOME), (aside, ASIDE)):
        red, green, blue = colour_at(draw(renderer.wrist, positions), wrist_camera(pose), top)
        assert red > 120 > max(green, blue)
    assert not np.array_equal(wrist_camera(ahead).project(top)[0], wrist_camera(aside).project(top)[0])


@pytest.mark.parametrize("joint", range(len(JOINTS)))
def test_every_joint_is_visible_in_both_views(renderer: Renderer, joint: int) -> None:
    """Lost otherwise: the policy cannot see a joint move, and neither can the person who watches."""
    moved = HOME.copy()
    moved[joint] += 0.5 * (JOINTS[joint].upper - moved[joint])
    for view in (renderer.front, renderer.wrist):
        assert (draw(view, HOME) != draw(view, moved)).any(axis=2).sum() > 50


def test_every_pixel_is_drawn_anew(renderer: Renderer) -> None:
    """Lost otherwise: the reused message keeps pixels of an older frame."""
    for view in (renderer.front, renderer.wrist):
        first = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        view(first, arm_pose(HOME + np.array([1.0, 0.2, 0.5, 0.02])))
        view(first, arm_pose(HOME))
        assert np.array_equal(first, draw(view, HOME))


def test_poses_at_every_limit_can_be_drawn(renderer: Renderer) -> None:
    """Lost otherwise: the robot dies in a corner of its work space (camera in a box, arm below the table)."""
    for corner in np.ndindex(2, 2, 2, 2):
        positions = [(joint.lower, joint.upper)[side] for joint, side in zip(JOINTS, corner, strict=True)]
        for view in (renderer.front, renderer.wrist):
            assert draw(view, positions).std() > 5
