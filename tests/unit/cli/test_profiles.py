"""Platforms under names: which one is used, and how one is chosen."""

from __future__ import annotations

import json
import tomllib

import pytest
from typer.testing import CliRunner

from benchmax import config
from benchmax.cli.app import app
from benchmax.errors import ConfigError, NotFoundError, UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.exceptions import TrainerError


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    for name in ("PROFILE", "PLATFORM_URL", "BASE_DOMAIN", "LLM_URL", "WEB_APP_URL", "AUTH_URL"):
        monkeypatch.delenv(f"BENCHMAX_{name}", raising=False)
        monkeypatch.delenv(f"CASTFORM_{name}", raising=False)
    monkeypatch.setenv("CASTFORM_CONFIG_PATH", str(tmp_path / "config.toml"))
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(tmp_path / "credentials.json"))
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path / "data"))
    return tmp_path / "config.toml"


def call(*words):
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_profile_names_the_platform_and_variables_win(own, monkeypatch):
    assert credentials.named_url() is None, "without one, this machine's own platform is meant"
    call("profile", "add", "work", "--url", "https://work.example")
    call("profile", "add", "play", "--domain", "play.example")
    assert own.stat().st_mode & 0o777 == 0o600
    assert credentials.named_url() is None, "one that is only kept is not used"
    call("profile", "activate", "work")
    assert config.platform_url() == credentials.named_url() == "https://work.example"
    monkeypatch.setenv("CASTFORM_PROFILE", "play")
    assert (config.platform_url(), config.llm_url()) == ("https://api.play.example", "https://llm.play.example/v1")
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", "https://given.example")
    assert config.platform_url() == "https://given.example"


def test_a_platform_that_is_away_is_said_to_come_from_the_profile(own):
    call("profile", "add", "work", "--url", "http://127.0.0.1:9")
    call("profile", "activate", "work")
    with pytest.raises(TrainerError, match=r"the profile 'work' in .*config\.toml names it.*activate none"):
        credentials.request_device_code("http://127.0.0.1:9")


def test_list_current_and_back_to_this_machine(own):
    assert json.loads(call("profile", "list", "--json").stdout) == {"active": None, "profiles": {}}
    call("profile", "add", "work", "--url", "https://work.example", "--llm-url", "https://llm.example/v1")
    call("profile", "add", "work", "--app-url", "https://app.example")
    call("profile", "activate", "work")
    assert call("profile", "current").stdout == "work\n"
    assert call("profile", "list").stdout == "* work  https://work.example\n"
    kept = json.loads(call("profile", "list", "--json").stdout)["profiles"]["work"]
    assert set(kept) == {"platform_url", "llm_url", "app_url"}
    call("profile", "activate", "none")
    assert call("profile", "current").stdout == ""
    assert credentials.named_url() is None


def test_the_option_is_for_one_command(monkeypatch):
    call("profile", "add", "work", "--url", "https://work.example")
    monkeypatch.setenv("BENCHMAX_PROFILE", "")  # restored afterwards
    assert call("--profile", "work", "profile", "current").stdout == "work\n"


def test_mistakes(own, monkeypatch):
    with pytest.raises(NotFoundError, match="no profile 'gone'"):
        call("profile", "activate", "gone")
    with pytest.raises(UsageError, match="needs an address"):
        call("profile", "add", "work")
    with pytest.raises(UsageError, match="no name for a profile"):
        call("profile", "add", "a]b", "--url", "https://x.example")
    monkeypatch.setenv("BENCHMAX_PROFILE", "gone")
    with pytest.raises(ConfigError, match="profile list"):
        config.platform_url()
    monkeypatch.delenv("BENCHMAX_PROFILE")
    own.write_text("active_profile = \n")
    with pytest.raises(ConfigError, match="Correct or remove it"):
        config.platform_url()


def test_a_file_of_comments_keeps_them(own):
    own.write_text("# see the wiki for our platforms\n")
    call("profile", "add", "work", "--url", "https://work.example")
    assert own.read_text("utf-8").startswith("# see the wiki for our platforms\n")


def test_a_file_written_by_hand_keeps_its_comments_and_other_settings(own):
    own.write_text('# mine\nother = 1\n\n[profiles.home]\nplatform_url = "https://home.example" # at home\n')
    call("profile", "add", "work", "--url", "https://wörk.example/\U0001f600")
    call("profile", "activate", "work")
    call("profile", "add", "home", "--llm-url", "https://llm.example")
    kept = own.read_text("utf-8")
    assert "# mine\nother = 1" in kept
    assert "# at home" in kept
    assert tomllib.loads(kept) == {
        "other": 1,
        "active_profile": "work",
        "profiles": {
            "home": {"platform_url": "https://home.example", "llm_url": "https://llm.example"},
            "work": {"platform_url": "https://wörk.example/\U0001f600"},
        },
    }
