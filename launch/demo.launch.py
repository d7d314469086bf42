# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The simulated arm and the policy node that moves it, in one launch.

    python3 -m flashrt_kernels.make_checkpoint pi05 /tmp/checkpoint --size small --cameras front,wrist \\
        --state-dim 4 --action-dim 4
    ros2 launch flashrt_ros demo.launch.py checkpoint:=/tmp/checkpoint
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description import LaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

SHARE = Path(get_package_share_directory("flashrt_ros"))


def generate_launch_description() -> LaunchDescription:
    """The policy's launch file first: it sets the Fast DDS profile, which the cameras need too."""
    policy = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "policy.launch.py")),
        launch_arguments={
            "namespace": LaunchConfiguration("namespace"),
            "checkpoint": LaunchConfiguration("checkpoint"),
            "autostart": LaunchConfiguration("autostart"),
            "params": str(SHARE / "config" / "demo.yaml"),
        }.items(),
    )
    robot = Node(
        package="flashrt_ros",
        executable="sim_robot",
        namespace=LaunchConfiguration("namespace"),
        output="screen",
        emulate_tty=True,
    )
    return LaunchDescription(
        [
            DeclareLaunchArgument("namespace", default_value="arm"),
            DeclareLaunchArgument("autostart", default_value="true"),
            DeclareLaunchArgument("checkpoint", description="folder made by flashrt_kernels.make_checkpoint"),
            policy,
            robot,
        ]
    )
