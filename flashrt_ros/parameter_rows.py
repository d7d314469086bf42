# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The rows of the parameter table (`parameter_table.py` reads and checks them)."""

from __future__ import annotations

from typing import Final

from flashrt_ros.parameter_row import REQUIRED, UNSET, Parameter

TRIGGERS = ("timer", "camera", "free", "consumed")
TRANSPORTS: Final = {
    "raw": "<name>/image_raw",
    "compressed": "<name>/image_raw/compressed",
    "pointcloud": "<name>/points",
}
"""Transport of a camera → its default topic."""
STAMP_SOURCES = ("auto", "header", "arrival")
STATE_SOURCES: Final = {"joint_state": "joint_states", "array": "<name>", "pose": "<name>/pose", "tf": ""}
"""Where the numbers of a state group come from → its default topic (tf listens to /tf and /tf_static)."""
STATE_FIELDS = ("position", "velocity", "effort")
ROTATIONS: Final = {
    "quaternion": ("qx", "qy", "qz", "qw"),
    "rpy": ("roll", "pitch", "yaw"),
    "rotvec": ("rx", "ry", "rz"),
    "rot6d": ("r00", "r10", "r20", "r01", "r11", "r21"),
    "rot6d_rows": ("r00", "r01", "r02", "r10", "r11", "r12"),
}
"""How a rotation is written as numbers → their names; rot6d: the first two columns of the matrix,
rot6d_rows: its first two rows, as GR00T and PyTorch3D write it (mixed up, they are inverse rotations)."""
OUTPUTS: Final = {
    "joint_position": ("trajectory", "joint_state", "array"),
    "joint_delta": ("trajectory", "joint_state", "array"),
    "joint_velocity": ("array", "joint_state"),
    "eef_pose": ("pose",),
    "eef_delta": ("pose", "twist_stamped"),
    "gripper": ("trajectory", "joint_state", "array", "gripper_command"),
    "base": ("twist", "twist_stamped"),
}
"""What the actions of a group are → the messages they can go out as; the first is the default."""
OUTPUT_TOPICS: Final = {
    "trajectory": "joint_trajectory",
    "joint_state": "joint_commands",
    "array": "commands",
    "pose": "target_pose",
    "twist": "cmd_vel",
    "twist_stamped": "cmd_vel",
    "gripper_command": "gripper_cmd",
}
STOP_ACTIONS = ("hold", "decelerate", "none")

PARAMETERS: Final = (
    Parameter("checkpoint", "string", REQUIRED, "Folder of the checkpoint.", example="/data/pi05_my_task"),
    Parameter("tokenizer", "string", "", "Tokenizer file or folder, when the checkpoint has none."),
    Parameter(
        "fast_tokenizer", "string", "", "Folder of the FAST tokenizer, when a Pi0-FAST checkpoint has none."
    ),
    Parameter("embodiment", "string", "", "The robot, where the checkpoint knows several (GR00T, openpi)."),
    Parameter(
        "delta_actions",
        "string",
        "",
        "openpi only: which actions are offsets to the state: 6,-1 is the first six of seven.",
    ),
    Parameter("chunk_size", "int", 0, "openpi only: actions of a chunk; 0 = its default.", low=0, high=10000),
    Parameter(
        "state_in_prompt",
        "string",
        "",
        "openpi's Pi0.5 only: whether the prompt holds the state; empty = its default.",
        choices=("", "true", "false"),
    ),
    Parameter(
        "adapt_to_pi",
        "string",
        "",
        "openpi on ALOHA only: joints and grippers become the policy's and back; empty = its default.",
        choices=("", "true", "false"),
    ),
    Parameter(
        "head",
        "string",
        "full",
        "actions: Pi0-FAST chooses among the words of a chunk only, which is faster.",
        choices=("full", "actions"),
    ),
    Parameter("pad_prompt_state", "bool", False, "LeRobot 0.4 only: the prompt holds the padded state."),
    Parameter(
        "image_size",
        "string",
        "",
        "WIDTHxHEIGHT of the cameras, for policies that see another number of patches then (GR00T N1.6).",
    ),
    Parameter("device", "string", "cpu", "Device that runs the policy."),
    Parameter(
        "precision",
        "string",
        "",
        "Precision of the weights; empty = the device's.",
        choices=("", "fp32", "bf16"),
    ),
    Parameter("num_inference_steps", "int", 0, "Denoising steps; 0 = the checkpoint's.", low=0, high=1000),
    Parameter("cpu_threads", "int", 0, "Threads of torch on the CPU; 0 = torch's choice.", low=0, high=1024),
    Parameter(
        "instruction", "string", "", "Instruction at start; the newest message on ~/instruction replaces it."
    ),
    Parameter("seed", "int", 0, "Key of the start noise.", low=0, high=2**63 - 1),
    Parameter("trigger", "string", "timer", "What starts a decision.", choices=TRIGGERS),
    Parameter("trigger_camera", "string", "", "Camera whose images start decisions, for trigger: camera."),
    Parameter(
        "decision_rate",
        "double",
        5.0,
        "Hz of decisions, for trigger: timer.",
        low=0,
        high=1000,
        low_open=True,
    ),
    Parameter(
        "action_rate_hz",
        "double",
        REQUIRED,
        "Hz at which the steps of a chunk are executed; no checkpoint holds it.",
        low=0,
        high=10000,
        low_open=True,
        example="30.0",
    ),
    Parameter("cameras", "string_list", REQUIRED, "Names of the node's cameras.", example="[front, wrist]"),
    Parameter(
        "joint_names",
        "string_list",
        [],
        "Joints of the state vector, in the policy's order, where it is their positions and no more.",
    ),
    Parameter(
        "state_groups",
        "string_list",
        [],
        "Groups of the state vector, in the policy's order; empty = one group, joint_names.",
    ),
    Parameter(
        "joint_max_age", "double", 0.5, "s; an older joint is not ready.", low=0, high=3600, low_open=True
    ),
    Parameter("action_names", "string_list", [], "Joints of the action vector; empty = joint_names."),
    Parameter(
        "action_groups",
        "string_list",
        [],
        "Groups of the action vector, in the policy's order; empty = one of joint positions, action_names.",
    ),
    Parameter("grippers", "string_list", [], "Joints whose open and closed positions are given."),
    Parameter(
        "actions_are_positions",
        "bool",
        False,
        "The actions are joint positions, whatever the checkpoint suggests (velocities, steps, poses).",
    ),
    Parameter(
        "execute",
        "string",
        "trajectory",
        "trajectory: a controller interpolates whole chunks; stream: this node does, at stream_rate_hz.",
        choices=("trajectory", "stream"),
    ),
    Parameter(
        "stream_rate_hz",
        "double",
        100.0,
        "Hz of commands that this node interpolates.",
        low=1,
        high=1000,
    ),
    Parameter(
        "blend_steps",
        "int",
        5,
        "Steps over which the distance between a new chunk and the commanded pose is blended out.",
        low=0,
        high=1000,
    ),
    Parameter(
        "end_velocity",
        "string",
        "zero",
        "Velocity at the last point of a trajectory; most controllers accept zero only.",
        choices=("zero", "free"),
    ),
    Parameter("limits", "bool", True, "false: no position, velocity and jump limits of the commands."),
    Parameter(
        "robot_description",
        "string",
        "",
        "URDF (the text, or the path of a file): limits of joints for which none are given.",
    ),
    Parameter(
        "stop_action",
        "string",
        "hold",
        "When the node must stop: hold the commanded pose, decelerate over stop_time, or none.",
        choices=STOP_ACTIONS,
    ),
    Parameter(
        "stop_time", "double", 0.3, "s to come to rest, for stop_action: decelerate.", low=0.01, high=10.0
    ),
    Parameter(
        "require_enable",
        "bool",
        True,
        "Commands flow only while ~/enable is fresh and true.",
    ),
    Parameter("enable_timeout", "double", 0.5, "s; an older ~/enable counts as false.", low=0.01, high=3600),
    Parameter("dry_run", "bool", False, "Publish chunks, but no commands."),
    Parameter(
        "shadow",
        "bool",
        False,
        "As dry_run, and ~/divergence says how far the policy is from whoever drives.",
    ),
    Parameter(
        "latch_after",
        "int",
        5,
        "Chunks in a row that are refused (not finite, jump, limits) before the node stops for good.",
        low=1,
        high=1000,
    ),
    Parameter(
        "limit_storm_after",
        "int",
        10,
        "Chunks in a row of which limits changed half of the points; 0 = off.",
        low=0,
        high=100000,
    ),
    Parameter(
        "replan_after",
        "int",
        0,
        "Steps the robot consumes before the next decision, for trigger: consumed; 0 = half a chunk.",
        low=0,
        high=10000,
    ),
    Parameter(
        "instruction_policy",
        "string",
        "flush",
        "At a new instruction: flush = stop and decide anew; finish_chunk = let the chunk end first.",
        choices=("flush", "finish_chunk"),
    ),
    Parameter(
        "pose_check",
        "bool",
        True,
        "Decide nothing until the robot's state lies once within what the policy was trained with.",
    ),
    Parameter(
        "max_skew",
        "double",
        0.0,
        "s between the oldest and the newest required source; 0 = off.",
        low=0,
        high=3600,
    ),
    Parameter(
        "stamp_source",
        "string",
        "auto",
        "Time of a message: its header's (auto: its arrival where that is unusable) or its arrival.",
        choices=STAMP_SOURCES,
    ),
    Parameter("debug_images", "double", 0.0, "Hz of ~/model_image/<camera>; 0 = off.", low=0, high=1000),
    Parameter(
        "autostart", "bool", False, "Configure and activate without a lifecycle manager.", read_only=True
    ),
)

CAMERA_PARAMETERS: Final = (
    Parameter("camera.<name>.slot", "string", "<name>", "Camera slot of the checkpoint."),
    Parameter(
        "camera.<name>.topic",
        "string",
        "",
        "Topic; empty = <name>/image_raw, plus /compressed if compressed; <name>/points for a cloud.",
    ),
    Parameter("camera.<name>.transport", "string", "raw", "Message type.", choices=tuple(TRANSPORTS)),
    Parameter(
        "camera.<name>.max_age",
        "double",
        0.5,
        "s; an older image is not ready.",
        low=0,
        high=3600,
        low_open=True,
    ),
    Parameter(
        "camera.<name>.required",
        "bool",
        True,
        "false: without a fresh image the slot is masked as in training.",
    ),
    Parameter(
        "camera.<name>.swap_red_blue",
        "bool",
        False,
        "For drivers that label red and blue the wrong way round.",
    ),
    Parameter(
        "camera.<name>.frozen_after",
        "int",
        10,
        "Images of one stamp or one content in a row that make the camera frozen; 0 = off.",
        low=0,
        high=100000,
    ),
)

JOINT_PARAMETERS: Final = (
    Parameter(
        "joint.<name>.scale", "double", 1.0, "Policy value = scale · message + offset; actions go back."
    ),
    Parameter(
        "joint.<name>.offset", "double", 0.0, "Policy value = scale · message + offset; actions go back."
    ),
    Parameter("joint.<name>.min", "double", UNSET, "Lowest command, in the robot's units."),
    Parameter("joint.<name>.max", "double", UNSET, "Highest command, in the robot's units."),
    Parameter(
        "joint.<name>.max_velocity",
        "double",
        UNSET,
        "Highest speed of the commands, in the robot's units per s.",
        low=0,
        high=1e6,
        low_open=True,
    ),
    Parameter(
        "joint.<name>.max_jump",
        "double",
        UNSET,
        "How far from the commanded pose a chunk may begin; unset = what max_velocity covers in the blend.",
        low=0,
        high=1e6,
        low_open=True,
    ),
)

GRIPPER_PARAMETERS: Final = (
    Parameter("gripper.<name>.open", "double", REQUIRED, "Position when open.", example="0.08"),
    Parameter("gripper.<name>.closed", "double", REQUIRED, "Position when closed.", example="0.0"),
    Parameter("gripper.<name>.policy_open", "double", 1.0, "The policy's value for open."),
    Parameter("gripper.<name>.policy_closed", "double", 0.0, "The policy's value for closed."),
)

STATE_PARAMETERS: Final = (
    Parameter(
        "state.<name>.source",
        "string",
        "joint_state",
        "Where its numbers come from.",
        choices=tuple(STATE_SOURCES),
    ),
    Parameter("state.<name>.topic", "string", "", "Topic; empty = joint_states, <name> or <name>/pose."),
    Parameter("state.<name>.names", "string_list", [], "Joints, or names of the numbers of an array."),
    Parameter(
        "state.<name>.field",
        "string",
        "position",
        "Field of the joint state.",
        choices=STATE_FIELDS,
    ),
    Parameter(
        "state.<name>.rotation",
        "string",
        "quaternion",
        "How the rotation of a pose is written.",
        choices=tuple(ROTATIONS),
    ),
    Parameter("state.<name>.frame", "string", "", "tf: the frame in which the pose is given."),
    Parameter("state.<name>.child_frame", "string", "", "tf: the frame whose pose it is."),
    Parameter(
        "state.<name>.max_age",
        "double",
        UNSET,
        "s; unset = joint_max_age.",
        low=0,
        high=3600,
        low_open=True,
    ),
)

ACTION_PARAMETERS: Final = (
    Parameter(
        "action.<name>.space",
        "string",
        "joint_position",
        "What its numbers are.",
        choices=tuple(OUTPUTS),
    ),
    Parameter(
        "action.<name>.output",
        "string",
        "",
        "Message that carries them; empty = the first that fits the space.",
        choices=("", *OUTPUT_TOPICS),
    ),
    Parameter("action.<name>.topic", "string", "", "Topic; empty = <name>/joint_trajectory and the like."),
    Parameter("action.<name>.names", "string_list", [], "Joints; none for poses, twists and the base."),
    Parameter(
        "action.<name>.rotation",
        "string",
        "quaternion",
        "How the rotation of a pose is written; of eef_delta: rpy or rotvec.",
        choices=tuple(ROTATIONS),
    ),
    Parameter("action.<name>.frame", "string", "", "Frame of poses and stamped twists."),
    Parameter(
        "action.<name>.max_linear_velocity",
        "double",
        UNSET,
        "m/s, of poses and twists.",
        low=0,
        high=1000,
        low_open=True,
    ),
    Parameter(
        "action.<name>.max_angular_velocity",
        "double",
        UNSET,
        "rad/s, of poses and twists.",
        low=0,
        high=1000,
        low_open=True,
    ),
    Parameter(
        "action.<name>.workspace",
        "double_list",
        [],
        "Box that a pose never leaves: [x, y, z lowest, x, y, z highest], m.",
    ),
)
