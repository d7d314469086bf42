# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the two cameras of the simulated robot see: boxes on a table, drawn with OpenCV into a given image.

Everything is a box. A frame is: project all corners at once, keep the faces that look at the camera, paint
them from far to near. World frame: x forward from the robot's base, y left, z up, metres; pixels rgb8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from flashrt_ros.sim.arm import HAND, ArmPose

HEIGHT, WIDTH = 480, 640
NEAR = 0.015  # faces that reach closer than this to the camera's plane are not drawn

_Vector = Sequence[float] | np.ndarray  # [3]

_ROOM = (196, 201, 207)
_FLOOR = (122, 117, 112)
_TABLE = (205, 178, 140)
_TABLE_SHADOW = (157, 135, 106)
_TABLE_LINE = (190, 162, 124)
_TABLE_EDGE = (141, 112, 80)
_STEEL, _DARK, _ORANGE, _FINGER = (176, 182, 190), (62, 66, 74), (236, 126, 40), (45, 48, 54)

_TABLE_X, _TABLE_Y = (-0.25, 0.85), (-0.60, 0.60)
_LIGHT = np.array([0.25, -0.35, 0.90]) / np.linalg.norm([0.25, -0.35, 0.90])

# Corners of the unit box, and its six faces as corner indices with their outward normals.
_CORNERS = np.array([[x, y, z] for z in (-0.5, 0.5) for y in (-0.5, 0.5) for x in (-0.5, 0.5)])  # [8, 3]
_FACES = np.array(
    [[1, 3, 7, 5], [2, 0, 4, 6], [3, 2, 6, 7], [0, 1, 5, 4], [4, 5, 7, 6], [2, 3, 1, 0]]
)  # [6, 4]
_NORMALS = np.array(
    [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], dtype=float
)  # [6, 3]


@dataclass(frozen=True)
class Box:
    """Edge lengths `size` [3] around `centre` [3], turned by pitch (nose up), then yaw (about z)."""

    centre: _Vector
    size: tuple[float, float, float]
    colour: tuple[int, int, int]
    yaw: float = 0.0
    pitch: float = 0.0


OBJECTS = (
    Box((0.46, 0.14, 0.025), (0.05, 0.05, 0.05), (206, 48, 44), yaw=0.5),
    Box((0.40, -0.17, 0.030), (0.06, 0.06, 0.06), (46, 96, 190), yaw=-0.3),
    Box((0.55, -0.03, 0.065), (0.05, 0.05, 0.13), (240, 200, 40), yaw=0.2),
    Box((0.55, -0.03, 0.150), (0.024, 0.024, 0.04), (250, 250, 245), yaw=0.2),
    Box((0.28, 0.32, 0.012), (0.20, 0.16, 0.024), (70, 140, 90)),
    Box((0.28, 0.40, 0.045), (0.20, 0.012, 0.09), (82, 160, 104)),
    Box((0.28, 0.24, 0.045), (0.20, 0.012, 0.09), (82, 160, 104)),
    Box((0.18, 0.32, 0.045), (0.012, 0.16, 0.09), (82, 160, 104)),
    Box((0.38, 0.32, 0.045), (0.012, 0.16, 0.09), (82, 160, 104)),
)


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: `rotation` [3, 3] maps world to camera axes (x right, y down, z forward)."""

    position: np.ndarray  # [3]
    rotation: np.ndarray  # [3, 3]
    focal: float  # pixels

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """World points [..., 3] → pixels [..., 2] (wrong at depths below `NEAR`) and depths [...]."""
        seen = (points - self.position) @ self.rotation.T  # [..., 3]
        depth = seen[..., 2]
        pixels = self.focal * seen[..., :2] / np.maximum(depth, NEAR)[..., None]
        return pixels + np.array([WIDTH / 2, HEIGHT / 2]), depth


def look_at(position: _Vector, target: _Vector, up: _Vector, focal: float) -> Camera:
    """A camera at `position` that looks at `target`; `up` points up in its image."""
    eye = np.array(position, dtype=float)
    forward = np.array(target, dtype=float) - eye
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, np.array(up, dtype=float))
    right /= np.linalg.norm(right)
    return Camera(eye, np.stack([right, np.cross(forward, right), forward]), focal)


FRONT_CAMERA = look_at((1.25, -0.45, 0.78), (0.22, 0.03, 0.13), (0.0, 0.0, 1.0), 640.0)


def wrist_camera(pose: ArmPose) -> Camera:
    """The camera on the hand: 7 cm before the wrist, looking straight down; image up = away from the base."""
    ahead = np.array([math.cos(pose.pan), math.sin(pose.pan), 0.0])
    eye = pose.wrist + 0.07 * ahead + (0.0, 0.0, 0.03)
    return look_at(eye, eye - (0.0, 0.0, 1.0), ahead, 400.0)


def arm_boxes(pose: ArmPose) -> list[Box]:
    """The arm as boxes."""
    yaw, side = pose.pan, np.array([-math.sin(pose.pan), math.cos(pose.pan), 0.0])
    hand = pose.wrist - (0.0, 0.0, HAND / 2)
    reach = pose.opening / 2 + 0.006
    tip = pose.wrist - (0.0, 0.0, HAND + 0.025)
    return [
        Box((0.0, 0.0, 0.02), (0.20, 0.20, 0.04), _DARK),
        Box((0.0, 0.0, 0.10), (0.11, 0.11, 0.12), _STEEL, yaw),
        Box(pose.shoulder, (0.09, 0.12, 0.09), _DARK, yaw, pose.upper_pitch),
        Box((pose.shoulder + pose.elbow) / 2, (0.25, 0.065, 0.065), _ORANGE, yaw, pose.upper_pitch),
        Box(pose.elbow, (0.07, 0.09, 0.07), _DARK, yaw, pose.upper_pitch),
        Box((pose.elbow + pose.wrist) / 2, (0.25, 0.05, 0.05), _ORANGE, yaw, pose.fore_pitch),
        Box(pose.wrist, (0.055, 0.07, 0.055), _DARK, yaw),
        Box(hand - (0.0, 0.0, 0.02), (0.04, 0.05, HAND - 0.04), _STEEL, yaw),
        Box(pose.wrist - (0.0, 0.0, HAND - 0.006), (0.03, 0.125, 0.012), _DARK, yaw),
        Box(tip + reach * side, (0.02, 0.012, 0.05), _FINGER, yaw),
        Box(tip - reach * side, (0.02, 0.012, 0.05), _FINGER, yaw),
    ]


class Renderer:
    """Draws the scene into images that the caller owns; what never moves is prepared once."""

    def __init__(self) -> None:
        self._still = _Solids(OBJECTS)
        self._grid = _table_grid()  # [lines, 2, 3]
        self._floor = np.full((HEIGHT, WIDTH, 3), _FLOOR, np.uint8)
        self._front_background = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        self._front_background[:] = _ROOM
        self._front_background[HEIGHT // 5 :] = _FLOOR
        self._draw_table(self._front_background, FRONT_CAMERA)
        _draw_shadows(self._front_background, FRONT_CAMERA, self._still)

    def front(self, image: np.ndarray, pose: ArmPose) -> None:
        """Draw the whole scene into `image` uint8 [480, 640, 3], in place."""
        np.copyto(image, self._front_background)
        moving = _Solids(arm_boxes(pose))
        _draw_shadows(image, FRONT_CAMERA, moving)
        _draw_faces(image, FRONT_CAMERA, (self._still, moving))

    def wrist(self, image: np.ndarray, pose: ArmPose) -> None:
        """Draw the view from the gripper into `image` uint8 [480, 640, 3], in place."""
        camera = wrist_camera(pose)
        moving = _Solids(arm_boxes(pose))
        np.copyto(image, self._floor)
        self._draw_table(image, camera)
        _draw_shadows(image, camera, self._still)
        _draw_shadows(image, camera, moving)
        _draw_faces(image, camera, (self._still, moving))

    def _draw_table(self, image: np.ndarray, camera: Camera) -> None:
        (x0, x1), (y0, y1) = _TABLE_X, _TABLE_Y
        top = np.array([[x0, y0, 0.0], [x1, y0, 0.0], [x1, y1, 0.0], [x0, y1, 0.0]])
        front = np.array([[x1, y0, 0.0], [x1, y1, 0.0], [x1, y1, -0.04], [x1, y0, -0.04]])
        _fill(image, camera.project(front)[0], _TABLE_EDGE)
        _fill(image, camera.project(top)[0], _TABLE)
        lines = np.rint(camera.project(self._grid)[0]).astype(np.int32)  # [lines, 2, 2]
        cv2.polylines(image, list(lines), False, _TABLE_LINE, 1)


class _Solids:
    """Corners [boxes, 8, 3], outward normals [boxes, 6, 3] and shaded colours [boxes, 6, 3] of some boxes."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        turns = np.stack([_turn(box.yaw, box.pitch) for box in boxes])  # [boxes, 3, 3]
        centres = np.array([box.centre for box in boxes])  # [boxes, 3]
        sizes = np.array([box.size for box in boxes])  # [boxes, 3]
        self.corners = (_CORNERS * sizes[:, None, :]) @ turns.transpose(0, 2, 1) + centres[:, None, :]
        self.normals = _NORMALS @ turns.transpose(0, 2, 1)
        light = 0.62 + 0.38 * np.clip(self.normals @ _LIGHT, 0.0, 1.0)  # [boxes, 6]
        self.colours = np.array([box.colour for box in boxes])[:, None, :] * light[..., None]
        # Where a distant lamp throws the corners' shadows on the table's plane z = 0.
        self.shadow = self.corners - _LIGHT * (self.corners[..., 2:] / _LIGHT[2])


def _turn(yaw: float, pitch: float) -> np.ndarray:
    """Rotation [3, 3]: pitch lifts the x axis, then yaw turns about z."""
    cy, sy, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    return np.array([[cy * cp, -sy, -cy * sp], [sy * cp, cy, -sy * sp], [sp, 0.0, cp]])


def _draw_faces(image: np.ndarray, camera: Camera, solids: Sequence[_Solids]) -> None:
    corners = np.concatenate([solid.corners for solid in solids])  # [boxes, 8, 3]
    normals = np.concatenate([solid.normals for solid in solids])  # [boxes, 6, 3]
    colours = np.concatenate([solid.colours for solid in solids]).reshape(-1, 3)  # [faces, 3]
    pixels, depth = camera.project(corners)  # [boxes, 8, 2], [boxes, 8]
    middles = corners[:, _FACES].mean(axis=2)  # [boxes, 6, 3]
    towards = np.einsum("bfi,bfi->bf", normals, camera.position - middles) > 0.0
    in_front = depth[:, _FACES].min(axis=2) > NEAR  # [boxes, 6]
    drawn = np.flatnonzero(towards & in_front)
    # Painter's order by the distance of the boxes' middles, so that the faces of one box stay together.
    distance = np.linalg.norm(corners.mean(axis=1) - camera.position, axis=1)[drawn // 6]
    quads = pixels[:, _FACES].reshape(-1, 4, 2)  # [faces, 4, 2]
    for face in drawn[np.argsort(-distance, kind="stable")]:
        _fill(image, quads[face], colours[face])


def _draw_shadows(image: np.ndarray, camera: Camera, solids: _Solids) -> None:
    pixels, _ = camera.project(solids.shadow)  # [boxes, 8, 2]
    for corners in np.clip(pixels, -4000, 4000).astype(np.int32):
        cv2.fillConvexPoly(image, cv2.convexHull(corners), _TABLE_SHADOW)


def _fill(image: np.ndarray, quad: np.ndarray, colour: Sequence[float] | np.ndarray) -> None:
    """Fill a convex polygon [corners, 2]; 1/16 pixel corners keep slow motion smooth."""
    fixed = np.rint(np.clip(quad, -4000, 4000) * 16).astype(np.int32)
    cv2.fillConvexPoly(image, fixed, [float(c) for c in colour], cv2.LINE_AA, 4)


def _table_grid() -> np.ndarray:
    (x0, x1), (y0, y1) = _TABLE_X, _TABLE_Y
    along = [[[x, y0, 0.0], [x, y1, 0.0]] for x in np.arange(x0 + 0.1, x1, 0.1)]
    across = [[[x0, y, 0.0], [x1, y, 0.0]] for y in np.arange(y0 + 0.1, y1, 0.1)]
    return np.array(along + across)  # [lines, 2, 3]
