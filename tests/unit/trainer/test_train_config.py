"""Settings: one tree, three spellings, every mistake at once."""

from __future__ import annotations

import json
import tomllib

import pytest

from benchmax.errors import ConfigError, NotFoundError
from benchmax.trainer.config import TrainConfig, build_config, dump_toml, fields, flags_tree, load_config
from benchmax.trainer.config.chosen_settings import preset_lr


def test_toml_flags_and_saved_config_are_one_tree(tmp_path):
    file = tmp_path / "train.toml"
    file.write_text("seed = 3\n[optim]\nlr = 1e-4\n[rollouts]\ngroup_size = 4\nweights = {correct = 0.5}\n")
    config = load_config(file, ["--optim.lr", "5e-4", "--rollouts.prompts_per_step=2", "--no-checkpoint.keep_best"])
    assert (config.seed, config.optim.lr, config.rollouts.group_size) == (3, 5e-4, 4)
    assert config.rollouts.prompts_per_step == 2
    assert config.checkpoint.keep_best is False
    assert build_config(tomllib.loads(dump_toml(config))) == config
    saved = tmp_path / "config.json"
    saved.write_text(config.model_dump_json())
    assert load_config(saved) == config


def test_all_mistakes_at_once_with_a_guess():
    tree = {"optim": {"lerning_rate": 1, "lr": -1}, "limits": {"steps": 0}, "rollouts": {"group_size": 1}, "lr": 2}
    with pytest.raises(ConfigError) as caught:
        build_config(tree)
    text = str(caught.value)
    assert "optim.lr: give a number above 0 or none, not -1" in text
    assert "limits.steps" in text
    assert "rollouts.group_size: give a whole number of at least 2, not 1" in text
    assert "lr: there is no such setting; did you mean optim.lr?" in text
    assert "optim.lerning_rate: there is no such setting" in text


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--optim.lrr", "1"], "did you mean optim.lr?"),
        (["--rollouts.group_sise", "4"], "did you mean rollouts.group_size?"),
        (["--optim.lr", "fast"], "optim.lr"),
        (["optim.lr", "1"], "Expected a setting like --optim.lr"),
        (["--optim", "1", "--optim.lr", "2"], "already given a plain value"),
        (["--rollouts.prompts_per_step", "2", "--algorithm.minibatches", "3"], "must not exceed"),
    ],
)
def test_bad_flags(flags, found):
    with pytest.raises(ConfigError, match=found.replace("?", r"\?")):
        load_config(None, flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--optim.lr", "fast"], "optim.lr: give a number above 0 or none, not 'fast'"),
        (["--optim.lr", "Infinity"], "optim.lr: give a number above 0 or none, not inf"),
        (["--data.eval_share", "1"], "data.eval_share: give a number of at least 0 and below 1, not 1"),
        (["--rollouts.group_size", "2.5"], "rollouts.group_size: give a whole number of at least 2, not 2.5"),
        (["--algorithm.advantage", "z"], "algorithm.advantage: give one of std, mean, not 'z'"),
        (["--checkpoint.keep_best", "maybe"], "checkpoint.keep_best: give true or false, not 'maybe'"),
        (["--lora.targets", "5"], "lora.targets: give a list of texts, not 5"),
        (["--rollouts.weights", '{"a": "b"}'], "rollouts.weights: give a table of numbers, not 'b'"),
        (["--optim", "1"], "optim: give a table of settings, not 1"),
        (["--seed", "x"], "seed: give a whole number, not 'x'"),
        (["--output.name", "../x"], "output.name: '../x' is not the name of one folder"),
        (["--output.name", "a/b"], "output.name: 'a/b' is not the name of one folder"),
    ],
)
def test_mistakes_are_told_in_our_words_with_what_is_allowed(flags, says):
    with pytest.raises(ConfigError) as caught:
        load_config(None, flags)
    assert says in str(caught.value)
    assert "Input should" not in str(caught.value)


def test_includes_merge_and_circles_are_named(tmp_path):
    (tmp_path / "base.toml").write_text("[limits]\nsteps = 7\nseconds = 5\n")
    (tmp_path / "run.toml").write_text('include = "base.toml"\n[limits]\nsteps = 8\n')
    config = load_config(tmp_path / "run.toml")
    assert (config.limits.steps, config.limits.seconds) == (8, 5)
    (tmp_path / "base.toml").write_text('include = "run.toml"\n')
    with pytest.raises(ConfigError, match=r"circle.*run\.toml.*base\.toml.*run\.toml"):
        load_config(tmp_path / "run.toml")


@pytest.mark.parametrize("text", ["[optim\n", '{"optim": '])
def test_unreadable_files(tmp_path, text):
    file = tmp_path / ("x.json" if text.startswith("{") else "x.toml")
    file.write_text(text)
    with pytest.raises(ConfigError, match="x"):
        load_config(file)


def test_a_missing_file_is_not_found_and_a_folder_is_no_settings_file(tmp_path):
    with pytest.raises(NotFoundError, match=r"There is no settings file .*x\.toml\. Check the path"):
        load_config(tmp_path / "x.toml")
    (tmp_path / "run.toml").write_text('include = "base.toml"\n')
    with pytest.raises(NotFoundError, match=r"base\.toml"):
        load_config(tmp_path / "run.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)


def test_every_field_is_documented():
    undocumented = [name for name, _, _, doc in fields() if not doc]
    assert undocumented == []
    assert len(list(fields())) > 60


def test_presets_fall_with_size():
    rates = [preset_lr(size, "lora") for size in (10**6, 135 * 10**6, 10**9, 3 * 10**9, 10**11)]
    assert rates == sorted(rates, reverse=True)
    assert preset_lr(135 * 10**6, "lora") == 5e-4
    assert preset_lr(135 * 10**6, "full") == 1e-5


def test_json_schema_is_strict_json():
    json.dumps(TrainConfig.model_json_schema())


def test_a_setting_without_its_value_is_refused_and_a_switch_is_not():
    from benchmax.trainer.config import flags_tree

    with pytest.raises(ConfigError, match=r"--eval\.rows needs a value"):
        flags_tree(["--eval.rows"])
    assert flags_tree(["--checkpoint.keep_best"]) == {"checkpoint": {"keep_best": True}}


def test_what_other_trainers_call_a_setting_is_understood():
    with pytest.raises(ConfigError, match=r"did you mean optim\.lr\?"):
        build_config({"optim": {"learning_rate": 1e-4}})


def test_any_text_comes_back_out_of_the_saved_toml(tmp_path):
    name = 'run 🚀 \x7f é \\ " 模'
    tree = {"data": {"env_args": {"🚀": name, "empty": None, "list": [1, "🚀"]}, "env": name}, "seed": 3}
    file = tmp_path / "config.toml"
    file.write_text(dump_toml(build_config(tree)), "utf-8")
    read = load_config(file)
    assert (read.data.env, read.data.env_args) == (name, {"🚀": name, "list": [1, "🚀"]})


@pytest.mark.parametrize("text", ["[1]", '{"include": 5}', '{"include": [1]}'])
def test_a_file_that_is_no_table_of_settings_is_refused(tmp_path, text):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"x\.json"):
        load_config(file)


def test_a_section_is_no_setting_when_a_run_is_resumed_either():
    with pytest.raises(ConfigError, match=r"limits: give a table of settings, not 5.*--limits\.steps"):
        flags_tree(["--limits", "5"])
    assert flags_tree(["--limits", '{"steps": 5}']) == {"limits": {"steps": 5}}


@pytest.mark.parametrize("given", ["q_proj,v_proj", "q_proj, v_proj", '["q_proj", "v_proj"]'])
def test_a_list_is_written_with_commas_or_as_json(given):
    assert load_config(None, ["--lora.targets", given]).lora.targets == ["q_proj", "v_proj"]
    assert load_config(None, ["--lora.targets", "q_proj"]).lora.targets == ["q_proj"]


def test_dashes_are_ours_to_change_in_settings_and_never_in_the_names_of_others():
    flags = ["--rollouts.weights.my-reward", "5", "--data.env-args.my-key=1", "--rollouts.max-new-tokens", "9"]
    config = load_config(None, [*flags, "--data.env_args.deep.my-switch", "--no-data.env_args.other-switch"])
    assert config.rollouts.weights == {"my-reward": 5.0}
    assert config.data.env_args == {"my-key": 1, "deep": {"my-switch": True}, "other-switch": False}
    assert config.rollouts.max_new_tokens == 9


@pytest.mark.parametrize("word", ["20240101", "true", "none", "1e3", '"quoted"'])
def test_the_flag_of_a_text_takes_the_word_as_it_is(word):
    config = load_config(None, ["--output.name", word, f"--data.env={word}"])
    assert (config.output.name, config.data.env) == (word, word)


def test_none_is_also_the_name_of_a_choice():
    assert load_config(None, ["--data.curriculum", "none"]).data.curriculum == "none"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("day = 2024-01-01", "day (2024-01-01)"),
        ("when = 2024-01-01T10:00:00Z", "when (2024-01-01 10:00:00+00:00)"),
        ("at = [{time = 10:00:00}]", "at.0.time (10:00:00)"),
        ("most = inf", "most (inf)"),
        ("deep = {least = -inf, rate = nan}", "deep.least (-inf), deep.rate (nan)"),
    ],
)
def test_an_argument_that_would_not_come_back_from_the_saved_settings_is_refused(tmp_path, given, named):
    file = tmp_path / "train.toml"
    file.write_text(f"[data.env_args]\nfine = [1, 0.5, true, 'a', {{b = []}}]\n{given}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert f"data.env_args: {named} cannot be saved" in str(caught.value)


def test_a_number_that_is_not_finite_is_refused_as_a_flag_too():
    with pytest.raises(ConfigError, match=r"data\.env_args: rate \(nan\) cannot be saved"):
        load_config(None, ["--data.env_args.rate", "NaN"])


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"limits": {"steps": True}}, "limits.steps: give a whole number of at least 1, not True"),
        ({"optim": {"lr": True}}, "optim.lr: give a number above 0 or none, not True"),
        ({"seed": False}, "seed: give a whole number, not False"),
        ({"rollouts": {"weights": {"a": True}}}, "rollouts.weights: give a table of numbers, not {'a': True}"),
    ],
)
def test_a_switch_is_no_number(tree, says):
    with pytest.raises(ConfigError) as caught:
        build_config(tree)
    assert says in str(caught.value)


def test_switching_off_takes_no_value_and_is_for_switches_alone():
    with pytest.raises(ConfigError, match=r"--no-checkpoint\.keep_best takes no value.*--checkpoint\.keep_best=true"):
        flags_tree(["--no-checkpoint.keep_best=true"])
    with pytest.raises(ConfigError, match=r"output\.name: give a text, not False"):
        load_config(None, ["--no-output.name"])


def test_flags_win_over_trees_and_trees_over_the_file_and_no_tree_is_changed(tmp_path):
    file = tmp_path / "train.toml"
    file.write_text("seed = 1\n[rollouts]\nweights = {a = 1, b = 1, c = 1}\n")
    rollouts = {"weights": {"b": 2, "c": 2}}
    config = load_config(file, ["--rollouts.weights.c", "3", "--rollouts.weights.d", "3"], rollouts=rollouts, seed=2)
    assert (config.seed, config.rollouts.weights) == (2, {"a": 1, "b": 2, "c": 3, "d": 3})
    assert rollouts == {"weights": {"b": 2, "c": 2}}
