"""An environment by what a person types: class, arguments, rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import pytest

from benchmax.envs.arithmetic import ArithmeticEnv
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.loading import (
    check_arguments,
    find_rows,
    load_env_class,
    make_env,
    own_json_rows,
    own_rows,
    parse_env_args,
)
from benchmax.errors import BenchmaxError, ConfigError, EnvDefinitionError, NotFoundError, UsageError


class Scored(BaseEnv):
    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
        return {"x": 1.0}


class Closed(Scored):
    def __init__(self, path: str, *, depth: int = 1) -> None:
        self.path = path


class Below(Closed):
    pass


class Open(Scored):
    def __init__(self, depth: int = 1, **kwargs: Any) -> None:
        self.further = kwargs


def test_both_ways_to_name_a_class() -> None:
    name = "benchmax.envs.arithmetic.arithmetic_env"
    assert load_env_class(f"{name}:ArithmeticEnv") is load_env_class(f"{name}.ArithmeticEnv") is ArithmeticEnv


def test_a_folder_without_an_environment_says_what_it_lacks(tmp_path) -> None:
    with pytest.raises(NotFoundError, match=r"has no env\.py or main\.py\. Name the file"):
        load_env_class(str(tmp_path))


def test_a_folder_needs_no_slash_and_hides_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "math"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "env.py").write_text(
            "from benchmax.envs.arithmetic import ArithmeticEnv\nclass Mine(ArithmeticEnv): pass\n"
        )
    assert load_env_class("mine").__name__ == "Mine"
    assert load_env_class("math").__name__ == "MathEnvLocal"


def test_a_file_of_rows_is_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.jsonl").write_text('{"prompt": "a"}\n')
    for spec in ("words.jsonl", str(tmp_path / "words.jsonl")):
        with pytest.raises(UsageError, match=r"is no Python file\. Name the environment's.* --data"):
            load_env_class(spec)


@pytest.mark.parametrize("spec", ["nothing", "./nothing", "no thing.X", ":X"])
def test_what_is_no_name_is_not_found(spec: str) -> None:
    with pytest.raises(NotFoundError, match="There is no environment named"):
        load_env_class(spec)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "x = 1\n",
            r"noenv\.py defines no environment\. Write a class in it that derives from benchmax\.BaseEnv, with",
        ),
        (
            "from benchmax.envs.arithmetic import ArithmeticEnv\n",
            r"noenv\.py defines no environment\. Name one that it imports \(ArithmeticEnv\): .*noenv\.py:ClassName, or",
        ),
    ],
)
def test_a_file_without_an_environment_says_what_to_write(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "noenv.py").write_text(text)
    with pytest.raises(EnvDefinitionError, match=told):
        load_env_class(str(tmp_path / "noenv.py"))


def test_a_missing_file_is_told_with_the_folder_looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for look in (load_env_class, lambda spec: find_rows(Scored, spec)):
        with pytest.raises(NotFoundError) as missing:
            look("rev.py")
        assert str(missing.value) == f"There is no file rev.py in {tmp_path}. Check the path."
        with pytest.raises(NotFoundError) as missing:
            look(str(tmp_path / "rev.py"))
        assert str(missing.value) == f"There is no file {tmp_path / 'rev.py'}. Check the path."


@pytest.mark.parametrize("cls", [Closed, Below])
def test_arguments_are_checked_before_anything_runs(cls: type[BaseEnv]) -> None:
    check_arguments(cls, {"path": "x", "depth": 2})
    with pytest.raises(EnvDefinitionError, match=r"needs the argument 'path'\. Give it with --env-arg path=VALUE"):
        check_arguments(cls, {})
    with pytest.raises(UsageError, match=r"takes no argument 'dept'\. Did you mean 'depth'\?"):
        check_arguments(cls, {"path": "x", "dept": 2})


class Typed(Scored):
    def __init__(
        self,
        count: int = 3,
        share: float = 0.5,
        name: str | None = None,
        on: bool = False,
        some: list[int] | None = None,
        names: Sequence[str] = (),
        sizes: Mapping[str, int] = MappingProxyType({}),
        noted: Annotated[int, {"unit": "rows"}] = 1,
    ) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"count": "x"}, "takes a whole number for 'count', such as 3, and 'x' is none. Correct --env-arg count=VALUE"),
        ({"count": True}, "a whole number for 'count'"),
        ({"count": 1.5}, "a whole number for 'count'"),
        ({"share": "x"}, "a number for 'share', such as 0.5"),
        ({"name": 3}, "takes a text for 'name', and 3 is none"),
        ({"on": "yes"}, "takes true or false for 'on'"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_its_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        make_env(Typed, given)


def test_values_of_the_right_types_are_taken() -> None:
    plain = ({"count": 4}, {"share": 1}, {"name": "x"}, {"name": None}, {"on": True}, {"some": "x"}, {})
    for given in (*plain, {"names": ["x"]}, {"sizes": {"x": 1}}, {"noted": 2}):
        assert isinstance(make_env(Typed, given), Typed)


def test_an_argument_that_is_set_is_no_part() -> None:
    assert parse_env_args(["math.level=3", "math.size=x"]) == {"math": {"level": 3, "size": "x"}}
    with pytest.raises(ConfigError, match=r"is for the part 'level', and 'level' is 3\. Leave one out"):
        parse_env_args(["level=3", "level.x=1"])
    assert parse_env_args([f"deep={'[' * 100_000}"])["deep"].startswith("[[")


def test_an_error_that_ends_with_a_full_stop_is_not_given_another() -> None:
    class Refuses(Scored):
        def __init__(self, **kwargs: Any) -> None:
            raise ValueError("It is too hot. Wait.")

    with pytest.raises(EnvDefinitionError, match=r"too hot\. Wait\. Correct its __init__"):
        make_env(Refuses, {})


def test_an_environment_with_kwargs_of_its_own_takes_anything() -> None:
    assert make_env(Open, {"other": 1}).further == {"other": 1}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"Scored takes no argument 'other'\. It takes: none"):
        make_env(Scored, {"other": 1})


def test_a_name_nobody_knows_never_reaches_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(BaseEnv, "load_dataset", classmethod(lambda cls, name, **kwargs: (asked.append(name), None)))
    with pytest.raises(NotFoundError, match="'mydata' is no file, and ArithmeticEnv knows no dataset of that name"):
        own_rows(ArithmeticEnv, "mydata")
    assert asked == []
    assert own_rows(ArithmeticEnv, "sums2")


def test_an_environment_may_ask_the_hub_for_what_it_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hub(Scored):
        @classmethod
        def load_dataset(cls, dataset_name: str = "easy", **kwargs: Any) -> tuple[Any, str | None]:
            return super().load_dataset(f"owner/{dataset_name}")

    monkeypatch.setattr(BaseEnv, "load_dataset", classmethod(lambda cls, name, **kwargs: ([name], None)))
    assert own_rows(Hub) == ["owner/easy"]
    assert own_rows(Hub, "hard") == ["owner/hard"]


def test_a_failing_loader_is_told_in_words() -> None:
    class Failing(Scored):
        @classmethod
        def load_dataset(cls, dataset_name: str, **kwargs: Any) -> tuple[Any, str | None]:
            raise KeyError(dataset_name)

    with pytest.raises(UsageError, match=r"Failing\.load_dataset failed: KeyError: 'x'"):
        own_rows(Failing, "x")
    with pytest.raises(UsageError, match=r"Failing\.load_dataset failed: TypeError"):
        own_rows(Failing)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (
            [{"prompt": "a"}, {"prompt": "b"}],
            r"Odd\.load_dataset returned \[.*\]\. Let it return two things: rows, None",
        ),
        (None, "Let it return two things"),
        (({"prompt": 1 / divisor} for divisor in (1, 0)), "two things"),
        (((1 / divisor for divisor in (1, 0)), None), r"Odd\.load_dataset failed: ZeroDivisionError"),
        ((None, None), "A dataset cannot be null"),
        (({"train": []}, None), "A dataset cannot be a dict"),
        (([{"when": date(2020, 1, 1)}], None), r"The rows of Odd\.load_dataset are no JSON: .*date"),
    ],
)
def test_what_a_loader_returns_is_rows_or_an_error_in_words(returned: Any, why: str) -> None:
    class Odd(Scored):
        @classmethod
        def load_dataset(cls, dataset_name: str = "", **kwargs: Any) -> Any:
            return returned

    with pytest.raises(BenchmaxError, match=why):
        own_json_rows(Odd)


def test_rows_without_an_end_are_read_as_they_are_made() -> None:
    class Drawn(Scored):
        @classmethod
        def load_dataset(cls, dataset_name: str = "", **kwargs: Any) -> Any:
            return ({"prompt": str(number)} for number in itertools.count()), None

    rows = own_rows(Drawn)
    assert [next(rows), next(rows)] == [{"prompt": "0"}, {"prompt": "1"}]


def test_dotted_paths_are_looked_up_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far_away_env.py").write_text("from benchmax import BaseEnv\nclass Far(BaseEnv): pass\n")
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    assert load_env_class("far_away_env:Far", tmp_path).__name__ == "Far"
