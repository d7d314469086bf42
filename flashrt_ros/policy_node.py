# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The lifecycle node: camera and joint messages in, action chunks out.

Transitions run on the executor, decisions on a thread of their own, diagnostics on another. What configure
builds is undone by cleanup in reverse order, from one stack; a configure that fails undoes the part that it
had built.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import State
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions

from flashrt_ros.channels import open_channels
from flashrt_ros.commands import Commands
from flashrt_ros.decision import Decider, DecisionThread, Pacing
from flashrt_ros.diagnostics import Heartbeat
from flashrt_ros.guardian import Guardian
from flashrt_ros.health import Health
from flashrt_ros.ingest import Ingest
from flashrt_ros.inputs import EnableTopic, Inputs, InstructionTopic, with_full_topics
from flashrt_ros.lifecycle import Refused, StopSignals, transition
from flashrt_ros.loading import load_policy_of
from flashrt_ros.node_parameters import NodeParameters
from flashrt_ros.outputs import CommandPublishers, Outputs
from flashrt_ros.oversight import Oversight
from flashrt_ros.packages import require_packages
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.pose_check import pose_check_of
from flashrt_ros.robot_view import LiveRobot
from flashrt_ros.running import Running, actions_line, vector_lines
from flashrt_ros.safety import Safety
from flashrt_ros.spaces import check_groups, describe

STOP_TIMEOUT_S = 2.0
SETTLE_S = 0.5  # beyond stop_time, for the end of a stop action


class PolicyNode(LifecycleNode):
    """Runs one policy. `load_policy(config)` replaces the loading (tests, benchmarks); `on_demand=False`
    receives images by callbacks; `cancelled` is asked during configure whether the process should stop
    instead."""

    def __init__(
        self,
        *,
        load_policy: Callable[[NodeConfig], Any] = load_policy_of,
        on_demand: bool = True,
        cancelled: Callable[[], bool] = lambda: False,
        **node_arguments: Any,
    ) -> None:
        super().__init__("policy", **node_arguments)
        is_real = load_policy is load_policy_of
        self._load_policy = partial(load_policy_of, progress=self._loaded) if is_real else load_policy
        self._loaded_quarters = 0
        self._on_demand = on_demand
        self._cancelled = cancelled
        self._undo = ExitStack()
        self._active = False
        self._beat_error = ""
        self._activations = 0
        self._gate = threading.Lock()  # the heartbeat looks at what transitions build and take down
        self.running: Running | None = None
        self.health = Health(self)
        self.oversight = Oversight(self, cancelled, self._deactivate_soon)
        self.parameters = NodeParameters(self, lambda: self.running is not None, self._on_parameter)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._heartbeat = Heartbeat(self._beat, self._on_beat_error)

    # ---- configure: the start-up story, in order ----

    @transition
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read, load, bind, warm up, open outputs and inputs. Nothing stays when one of the steps fails."""
        self._take_down()
        self.health.fault = None
        with ExitStack() as undo:
            undo.callback(self.health.at, None)
            config = self._read_parameters()
            policy = self._load(config, undo)
            config = config.for_horizon(policy.horizon)
            self._bind(config, policy)
            self._warm_up(policy)
            running = self._assemble(config, policy, undo)
            self._listen(running, undo)
            with self._gate:
                self.running = running
            undo.callback(self._forget)
            self._undo = undo.pop_all()
        self.health.at(None)
        # What configure allocated lives as long as the node: the collector need not walk it while deciding.
        gc.collect()
        gc.freeze()
        return super().on_configure(state)

    def _step(self, text: str) -> None:
        if self._cancelled():
            raise Refused("the process is stopping")
        self.health.at(text)
        self.get_logger().info(text)

    def _read_parameters(self) -> NodeConfig:
        self._step("configure 1/6: read parameters")
        config = NodeConfig.from_dict(self.parameters.read())
        require_packages(config)
        # What is wrong with topics or limits is told now, not after a minute of loading.
        with_full_topics(self, config)
        open_channels(config)
        return config

    def _load(self, config: NodeConfig, undo: ExitStack) -> Any:
        self._step(f"configure 2/6: load {config.checkpoint} on {config.device}")
        self._loaded_quarters = 0
        policy = self._load_policy(config)
        undo.callback(policy.close)
        self.get_logger().info(f"{config.checkpoint} is {policy.name}, written by {policy.origin}")
        return policy

    def _loaded(self, done: int, total: int) -> None:
        """One line for each quarter of the weights: on a small computer they take a while."""
        quarters = 4 * done // total
        if quarters > self._loaded_quarters:
            self._loaded_quarters = quarters
            unit, name = (1e9, "GB") if total >= 1e9 else (1e6, "MB")
            self._step(f"configure 2/6: {done / unit:.1f} of {total / unit:.1f} {name} of weights in place")

    def _bind(self, config: NodeConfig, policy: Any) -> None:
        self._step(f"configure 3/6: bind cameras and joints by name to {policy.name}")
        check_groups(config, policy)
        for note in (*config.check_policy(policy), *describe(config.action_groups, policy)):
            self.get_logger().info(note)
        policy.bind([camera.slot for camera in config.cameras])
        for line in (*vector_lines(config), actions_line(policy)):
            self.get_logger().info(line)

    def _warm_up(self, policy: Any) -> None:
        self._step("configure 4/6: warm up")
        policy.warm_up(progress=lambda text: self._step(f"configure 4/6: warm up: {text}"))

    def _assemble(self, config: NodeConfig, policy: Any, undo: ExitStack) -> Running:
        self._step("configure 5/6: publishers and the decision thread")
        channels = open_channels(config)
        publishers = CommandPublishers(self, channels, config)
        undo.callback(publishers.close)
        outputs = Outputs(self, config, policy)
        undo.callback(outputs.close)
        named, check = with_full_topics(self, config), pose_check_of(policy, config)
        ingest = Ingest(named, self._warn, self._info, pose_check=check, model=policy.name)
        inputs = Inputs(self, config, ingest)
        commands = Commands(
            channels,
            Safety(config),
            config,
            publishers,
            LiveRobot(ingest, inputs.pull, self.now_ns),
        )
        decider = Decider(
            policy,
            ingest,
            config,
            pull=inputs.pull,
            on_epoch=self.oversight.epoch_over,
            remaining_s=lambda: commands.remaining_s(time.monotonic_ns()),
        )
        thread = DecisionThread(
            decider,
            Pacing(
                config.trigger,
                config.decision_rate,
                due_in_s=lambda: commands.replan_in_s(time.monotonic_ns()),
            ),
            publish=self.oversight.chunk,
            now_ns=self.now_ns,
            on_error=self.oversight.failed,
            on_skip=self.oversight.skipped,
        )
        guardian = Guardian(
            commands,
            config.stream_rate_hz,
            config.stop_time + SETTLE_S,
            self.oversight.alarm,
            self.oversight.stopped,
            on_error=self.oversight.failed,
        )
        undo.callback(guardian.stop)
        return Running(config, policy, ingest, inputs, outputs, commands, decider, thread, guardian)

    def _listen(self, running: Running, undo: ExitStack) -> None:
        self._step("configure 6/6: subscriptions")
        undo.callback(running.inputs.close)
        running.inputs.open(running.thread.trigger, on_demand=self._on_demand)
        instruction = InstructionTopic(self, self._on_instruction)
        undo.callback(instruction.close)
        enable = EnableTopic(self, self._on_enable)
        undo.callback(enable.close)

    def _forget(self) -> None:
        with self._gate:
            self.running = None
        gc.unfreeze()

    # ---- the other transitions ----

    @transition
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Open the publishers, start deciding."""
        if self.running is None:
            raise Refused("the node is not configured")
        self.health.fault = None
        result = super().on_activate(state)
        self.running.commands.reset()
        self.oversight.begin()
        try:
            self.running.guardian.start()
            self.running.thread.start()
        except RuntimeError as error:
            self._stop_deciding()
            super().on_deactivate(state)
            raise Refused(str(error)) from error
        self._activations += 1
        with self._gate:
            self._active = True
        self.health.at(None)
        self.get_logger().info("active: deciding")
        return result

    @transition
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop deciding; a decision in flight is waited for at most 2 s and never published (R49)."""
        self._stop_deciding()
        return super().on_deactivate(state)

    @transition
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo configure in reverse. Refused while a decision is in flight: it uses what would be closed."""
        self._take_down()
        return super().on_cleanup(state)

    @transition
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Deactivate and clean up from wherever the node is."""
        if self._stop_deciding():
            self._undo.close()
        return super().on_shutdown(state)

    @transition
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo what the failed transition left, so that the node can be configured again."""
        if self._stop_deciding():
            self._undo.close()
        return TransitionCallbackReturn.SUCCESS

    def _take_down(self) -> None:
        if not self._stop_deciding():
            raise Refused("a decision is still running; try again when it has ended")
        self._undo.close()

    def _stop_deciding(self) -> bool:
        """Stop the thread; False when a decision is still in flight afterwards."""
        if self.running is None:
            return True
        with self._gate:
            self._active = False  # from here on the end of the decision thread is no alarm
        # Ends the epoch first, which stops the robot (`Oversight.epoch_over`); only then it waits.
        stopped = self.running.thread.stop(STOP_TIMEOUT_S)
        self.running.guardian.stop()
        if not stopped:
            self.get_logger().warning(
                f"a decision is still in flight after {STOP_TIMEOUT_S:g} s; its result will be dropped"
            )
        return stopped

    # ---- events ----

    def _warn(self, kind: str, text: str) -> None:
        self.get_logger().warning(text)

    def _info(self, text: str) -> None:
        self.get_logger().info(text)

    def now_ns(self) -> int:
        """The node's clock, ns."""
        return int(self.get_clock().now().nanoseconds)

    def _on_instruction(self, text: str) -> None:
        running = self.running
        if running is not None and running.decider.set_instruction(text):
            self.get_logger().info(f"instruction: {text!r}")

    def _on_parameter(self, name: str, value: Any) -> None:
        if name == "instruction":
            self._on_instruction(value)
        elif self.running is not None:
            self.running.outputs.debug_images_hz = float(value)

    def _on_enable(self, value: bool, age_ns: int) -> None:
        running = self.running
        if running is not None:
            running.commands.safety.enable(value, time.monotonic_ns() - age_ns)

    def _deactivate_soon(self) -> None:
        if self.executor is not None:
            self.executor.create_task(self._deactivate_after_fault, self._activations)

    def _deactivate_after_fault(self, activation: int) -> None:
        """Not a later activation than the one that failed."""
        if self.state_id == State.PRIMARY_STATE_ACTIVE and activation == self._activations:
            self.trigger_deactivate()

    def _beat(self) -> None:
        with self._gate:
            statuses = self.health.report(self.running, active=self._active, state=self.state_label)
        message = DiagnosticArray(status=statuses)
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    def _on_beat_error(self, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        if text != self._beat_error:  # not every second
            self._beat_error = text
            self.get_logger().error(f"diagnostics failed\n{text}")

    # ---- the process ----

    @property
    def is_active(self) -> bool:
        """Whether the threads of an activation are meant to run."""
        return self._active

    @property
    def state_id(self) -> int:
        """lifecycle_msgs/State id of now."""
        return int(self._state_machine.current_state[0])

    @property
    def state_label(self) -> str:
        """Name of the state of now, as `ros2 lifecycle get` prints it."""
        return str(self._state_machine.current_state[1])

    @property
    def decision_in_flight(self) -> bool:
        """Whether the policy computes, be it for nothing (its result is dropped after deactivate)."""
        return self.running is not None and self.running.thread.running

    def start(self) -> None:
        """Configure and activate, without a lifecycle manager (parameter `autostart`)."""
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    def stop(self) -> None:
        """Shut down from any state and silence the diagnostics."""
        if self.state_id != State.PRIMARY_STATE_FINALIZED:
            self.trigger_shutdown()
        self._heartbeat.close()

    def destroy_node(self) -> None:
        """Take the node and all it created off the graph, at once."""
        super().destroy_node()
        # rclpy forgets the state machine. It holds the DDS participant until some garbage collection, and the
        # half of a node that the graph then shows makes rmw call every service of a new node of that name
        # unavailable.
        self._state_machine.destroy_when_not_in_use()


def main(args: list[str] | None = None, load_policy: Callable[[NodeConfig], Any] = load_policy_of) -> int:
    """Run the node until SIGINT or SIGTERM; returns the exit code: 0 after a clean stop, 2 for arguments that
    ROS cannot read."""
    # A decision waits for the interpreter when another thread holds it; the default lets it hold 5 ms.
    sys.setswitchinterval(0.0005)
    signals = StopSignals()
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # an unreadable parameter file or argument: the text names it
        print(f"policy_node: {error}", file=sys.stderr)
        return 2
    try:
        node = PolicyNode(load_policy=load_policy, cancelled=lambda: signals.requested)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            if node.get_parameter("autostart").value:
                executor.create_task(node.start)
            else:
                node.get_logger().info(
                    "unconfigured: waiting for a lifecycle manager or `ros2 lifecycle set` to configure and "
                    "activate (with parameter autostart:=true the node does both itself)"
                )
            while not signals.requested:
                executor.spin_once(timeout_sec=0.1)
        finally:
            node.stop()
            in_flight = node.decision_in_flight
            executor.shutdown()
            node.destroy_node()
    finally:
        rclpy.try_shutdown()
    if in_flight:
        # Taking the interpreter down under a thread that computes aborts the process, core dump and all.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
