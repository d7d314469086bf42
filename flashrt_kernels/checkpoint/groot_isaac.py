# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The processing of an Isaac-GR00T folder: processor_config.json, statistics.json, embodiment_id.json."""

from collections.abc import Sequence
from pathlib import Path

from flashrt_kernels.checkpoint.fields import Fields, listed, read_json
from flashrt_kernels.checkpoint.groot_dims import Version
from flashrt_kernels.checkpoint.groot_groups import ActionGroup, ActionRule, StateGroup, StateRule
from flashrt_kernels.checkpoint.groot_processing import (
    GrootProcessing,
    action_group,
    camera_names,
    check_one_frame,
    joined_statistics,
    modality_keys,
    numbered,
    places,
    read_images,
    state_group,
)
from flashrt_kernels.errors import CheckpointError

PROCESSOR_FILE = "processor_config.json"
STATISTICS_FILE = "statistics.json"
EMBODIMENT_FILE = "embodiment_id.json"
_MOST = 100_000

# Weights of embodiments that a folder's own file does not name, as the released code assigns them.
EMBODIMENTS: dict[Version, dict[str, int]] = {
    "n16": {
        "oxe_google": 0,
        "oxe_widowx": 1,
        "libero_panda": 2,
        "unitree_g1": 8,
        "new_embodiment": 10,
        "robocasa_panda_omron": 13,
        "oxe_droid": 16,
        "gr1": 20,
        "behavior_r1_pro": 24,
    },
    "n17": {
        "simpler_env_google": 0,
        "simpler_env_widowx": 1,
        "libero_sim": 2,
        "new_embodiment": 10,
        "robocasa_panda_omron": 10,
        "robocasa_gr1_tabletop": 10,
        "unitree_g1_sonic": 11,
        "oxe_droid_relative_eef_relative_joint": 24,
        "real_g1_relative_eef_relative_joints": 25,
        "unitree_g1_full_body_with_waist_height_nav_cmd": 25,
        "real_r1_pro_sharpa_relative_eef": 26,
        "real_r1_pro_sharpa_relative_eef_human": 26,
        "real_r1_pro_sharpa_relative_eef_maxinsights": 26,
        "real_r1_pro_sharpa_relative_eef_mecka": 26,
        "xdof_relative_eef_relative_joint": 27,
        "xdof_relative_eef_relative_joint_subtask": 27,
    },
}


def read_isaac(
    folder: Path, version: Version, embodiment: str | None, image_size: tuple[int, int] | None
) -> GrootProcessing:
    """Raises `CheckpointError` naming file and key, or the embodiments to choose from."""
    settings = read_json(folder / PROCESSOR_FILE).child("processor_kwargs")
    modalities, statistics = settings.child("modality_configs"), read_json(folder / STATISTICS_FILE)
    tag = _embodiment(folder, modalities, statistics, embodiment)
    modality, statistics = modalities.child(tag), statistics.child(tag)
    _refuse_unknown(settings, modality.child("state"))
    action = modality.child("action")
    horizon = len(action.array("delta_indices"))
    cameras = modality_keys(modality.child("video"))
    for name in ("video", "state"):
        check_one_frame(modality.child(name))
    states = _states(settings, modality.child("state"), statistics.child("state"))
    actions = _actions(settings, action, statistics, states, horizon)
    action_dim = sum(group.width for group in actions)
    return GrootProcessing(
        embodiment=tag,
        embodiment_index=_index(folder, version, tag),
        cameras=cameras,
        camera_names=camera_names(cameras),
        state_groups=states,
        action_groups=actions,
        action_dim=action_dim,
        action_names=numbered(actions),
        horizon=horizon,
        formalise=settings.boolean("formalize_language", default=True),
        images=read_images(settings, image_size),
        state_stats=joined_statistics(statistics.child("state"), [group.name for group in states]),
        action_stats=joined_statistics(statistics.child("action"), [group.name for group in actions]),
        not_positions=_not_positions(action),
        notes=tuple(_notes(action, horizon, tag)),
    )


def _embodiment(folder: Path, modalities: Fields, statistics: Fields, wanted: str | None) -> str:
    """The embodiment that is wanted, or the only one that both files describe."""
    both = [tag for tag in modalities if tag in statistics]
    if not both:
        raise CheckpointError(
            f"{folder}: no embodiment is in both {PROCESSOR_FILE} ({listed(list(modalities)) or 'none'}) and "
            f"{STATISTICS_FILE} ({listed(list(statistics)) or 'none'})"
        )
    if wanted is None and len(both) > 1:
        raise CheckpointError(
            f"{folder}: has several embodiments, give one as `embodiment`: {listed(both, 64)}"
        )
    if wanted is not None and wanted not in both:
        missing = [
            file
            for file, tags in ((PROCESSOR_FILE, modalities), (STATISTICS_FILE, statistics))
            if wanted not in tags
        ]
        raise CheckpointError(
            f"{folder}: embodiment {wanted} is not in {listed(missing)}; expected one of {listed(both, 64)}"
        )
    return wanted or both[0]


def _index(folder: Path, version: Version, tag: str) -> int:
    path = folder / EMBODIMENT_FILE
    own = read_json(path) if path.exists() else Fields(path, "", {})
    if tag in own:
        return own.integer(tag, 0, _MOST)
    if tag in EMBODIMENTS[version]:
        return EMBODIMENTS[version][tag]
    known = listed([*own, *EMBODIMENTS[version]], 64)
    raise CheckpointError(f"{path}: does not say which weights are those of {tag}; known: {known}")


def _refuse_unknown(settings: Fields, state: Fields) -> None:
    for fields, name, why in (
        (settings, "use_tactile", "no touch sensors are read"),
        (settings, "exclude_state", "the state is always read"),
        (state, "exclude_state", "the state is always read"),
    ):
        if fields.given(name) and fields.boolean(name):
            raise fields.error(name, f"is true, expected false: {why}")


def _states(settings: Fields, modality: Fields, statistics: Fields) -> tuple[StateGroup, ...]:
    percentiles = settings.boolean("use_percentiles", default=False)
    low, high = ("q01", "q99") if percentiles else ("min", "max")
    clip = settings.boolean("clip_outliers", default=True)
    encoded = settings.boolean("apply_sincos_state_encoding", default=False)
    turning = (modality.strings("sin_cos_embedding_keys", default=None) or ()) if encoded else ()
    scaled = modality.strings("mean_std_embedding_keys", default=None) or ()

    def rule(name: str) -> StateRule:
        if name in turning:
            return "sin_cos"
        return "mean_std" if name in scaled else "range"

    return tuple(
        state_group(statistics.child(name), name, rule(name), low, high, clip)
        for name in modality_keys(modality)
    )


def _actions(
    settings: Fields, modality: Fields, statistics: Fields, states: Sequence[StateGroup], horizon: int
) -> tuple[ActionGroup, ...]:
    scaled = modality.strings("mean_std_embedding_keys", default=None) or ()
    percentiles = settings.boolean("use_percentiles", default=False)
    enabled = settings.boolean("use_relative_action", default=False)
    groups = []
    for name, config in action_configs(modality):
        rule: ActionRule = "mean_std" if name in scaled else "range"
        relative = relative_rule(config, name) if enabled and config is not None else None
        groups.append(action_group(statistics, name, rule, percentiles, relative, places(states), horizon))
    return tuple(groups)


def action_configs(modality: Fields) -> list[tuple[str, Fields | None]]:
    """Group and its config, in order. Raises `CheckpointError` unless there are as many of both, or none."""
    names = modality_keys(modality)
    if not modality.given("action_configs"):
        return [(name, None) for name in names]
    configs = modality.children("action_configs")
    if len(configs) != len(names):
        raise modality.error(
            "action_configs", f"has {len(configs)} entries, expected one for each of {listed(list(names))}"
        )
    return list(zip(names, configs, strict=True))


def relative_rule(config: Fields, name: str) -> tuple[str, bool] | None:
    """(state group that the action group `name` is relative to, whether both are poses); None: absolute."""
    if _word(config, "rep") != "relative":
        return None
    pose = _word(config, "type") == "eef"
    if pose and _word(config, "format") not in ("xyz_rot6d", "xyz+rot6d"):
        came = config.string("format")
        raise config.error("format", f"is {came}, expected XYZ_ROT6D for a relative end effector")
    if not pose and _word(config, "type") != "non_eef":
        raise config.error("type", f"is {config.string('type')}, expected EEF or NON_EEF")
    return (config.string("state_key") if config.given("state_key") else name), pose


def _word(config: Fields, name: str) -> str:
    return config.string(name).lower()


def _not_positions(action: Fields) -> str:
    """Which groups of actions no joint takes as its position, in words."""
    kinds = {
        "changes": [n for n, c in action_configs(action) if c is not None and _word(c, "rep") == "delta"],
        "poses": [n for n, c in action_configs(action) if c is not None and _word(c, "type") == "eef"],
    }
    return "; ".join(f"{listed(names)}: {what}" for what, names in kinds.items() if names)


def _notes(action: Fields, horizon: int, tag: str) -> list[str]:
    notes = []
    steps = action.array("delta_indices").tolist()
    if steps != list(range(horizon)):
        notes.append(
            f"{PROCESSOR_FILE}: {action.path('delta_indices')} is {steps}: the actions of a chunk are not "
            "one recorded step apart, action_rate_hz must be theirs"
        )
    for name, config in action_configs(action):
        if config is not None and _word(config, "rep") == "delta":
            notes.append(f"{PROCESSOR_FILE}: actions of {name} are changes (DELTA), and are given as such")
    if tag == "libero_sim":
        notes.append(
            "libero_sim: the gripper leaves as the policy gives it, 0 … 1; LIBERO's simulator wants "
            "−sign(2g − 1), which Isaac-GR00T applies in its environment"
        )
    return notes
