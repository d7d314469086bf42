# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Start the policy node, and configure and activate it.

    ros2 launch flashrt_ros policy.launch.py namespace:=arm params:=my_robot.yaml checkpoint:=/data/my_task

Any topic of the node is remapped by `remaps`, in the form of a ROS command line:

    remaps:="front/image_raw:=/cam/front wrist/image_raw:=/cam/wrist"

Active is not yet moving: unless the parameter file says `require_enable: false`, commands flow only while
somebody publishes true on `~/enable`, for which there is no argument on purpose. In a terminal of its own,
where Ctrl-C stops the robot:

    ros2 topic pub -r 10 /arm/policy/enable std_msgs/msg/Bool "{data: true}"

`joint_trajectory` is the topic of nodes without `action_groups`; groups have topics of their own.
"""

import os
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
)
from launch.conditions import IfCondition
from launch.events import matches_action
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.launch_description_entity import LaunchDescriptionEntity
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition

SHARE = Path(get_package_share_directory("flashrt_ros"))
# Fast DDS 2 (Jazzy) and 3 (from Kilted on) read differently named variables.
PROFILE_VARIABLE = (
    "FASTRTPS_DEFAULT_PROFILES_FILE"
    if os.environ.get("ROS_DISTRO") == "jazzy"
    else "FASTDDS_DEFAULT_PROFILES_FILE"
)
ARGUMENTS = {
    "namespace": ("", "namespace of the node; two robots are two namespaces"),
    "params": (str(SHARE / "config" / "policy.yaml"), "parameter file"),
    "checkpoint": ("", "folder of the checkpoint; empty = the parameter file's"),
    "use_sim_time": ("false", "time from /clock"),
    "autostart": ("true", "configure and activate; false leaves that to a lifecycle manager"),
    "joint_states": ("joint_states", "topic of the joint states"),
    "joint_trajectory": (
        "joint_trajectory",
        "topic of the trajectories, without action_groups: /arm_controller/joint_trajectory, …",
    ),
    "remaps": (
        "",
        "further topics, FROM:=TO with spaces between them: front/image_raw:=/cam/front ~/instruction:=/task",
    ),
}


def parse_remaps(text: str) -> list[tuple[str, str]]:
    """`a:=b c:=d` as pairs. Raises ValueError, before anything starts, naming what is not FROM:=TO."""
    pairs: list[tuple[str, str]] = []
    for word in text.split():
        source, separator, target = word.partition(":=")
        if not (source and separator and target) or ":=" in target:
            raise ValueError(
                f"remaps: '{word}' is not FROM:=TO; write for example "
                'remaps:="front/image_raw:=/cam/front wrist/image_raw:=/cam/wrist"'
            )
        if source in (given for given, _ in pairs):
            raise ValueError(f"remaps: '{source}' comes twice; one topic can go to one name")
        pairs.append((source, target))
    return pairs


def start_policy(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """The node with the values of the arguments, and the transitions that bring it to `active`."""
    value = {name: LaunchConfiguration(name).perform(context) for name in ARGUMENTS}
    overrides: dict[str, object] = {"use_sim_time": value["use_sim_time"].lower() == "true"}
    if value["checkpoint"]:
        overrides["checkpoint"] = value["checkpoint"]
    node = LifecycleNode(
        package="flashrt_ros",
        executable="policy_node",
        name="policy",
        namespace=value["namespace"],
        parameters=[value["params"], overrides],
        # Of two rules for one topic ROS takes the first: what was written out in `remaps` wins.
        remappings=parse_remaps(value["remaps"])
        + [(topic, value[topic]) for topic in ("joint_states", "joint_trajectory")],
        output="screen",
        emulate_tty=True,
    )
    autostart = IfCondition(LaunchConfiguration("autostart"))
    activate = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="inactive",
            entities=[change_state(node, Transition.TRANSITION_ACTIVATE)],
            handle_once=True,  # whoever configures the node again by hand decides when the robot moves again
        ),
        condition=autostart,
    )
    return [activate, node, change_state(node, Transition.TRANSITION_CONFIGURE, condition=autostart)]


def change_state(node: LifecycleNode, transition: int, condition: IfCondition | None = None) -> EmitEvent:
    """Ask `node` for a transition."""
    event = ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)
    return EmitEvent(event=event, condition=condition)


def generate_launch_description() -> LaunchDescription:
    """Arguments, Fast DDS profile, node."""
    profile = []
    if PROFILE_VARIABLE not in os.environ:  # somebody's own profile wins
        profile = [
            SetEnvironmentVariable(PROFILE_VARIABLE, str(SHARE / "config" / "fastdds_large_images.xml"))
        ]
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, *profile, OpaqueFunction(function=start_policy)])
