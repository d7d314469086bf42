# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where the tests of the rows are: `ROWS + "R1_…"` is the id of one."""

ROWS = "test/ros/test_policy_node_rows.py::test_"
OWN = "test/ros/test_policy_node_rows_own.py::test_"
FAULTS = "test/ros/test_policy_node_faults.py::test_"
INPUTS = "test/ros/test_policy_node_inputs.py::test_"
MOTION = "test/ros/test_policy_node_motion.py::test_"
SOURCES = "test/ros/test_policy_node_sources.py::test_"
NODE = "test/ros/test_policy_node.py::test_"
ROS = "test/ros/test_"
KERNELS = "test/kernels/test_"
FOLDERS = "test/kernels/checkpoint/test_"
