import inspect

import pytest

from benchmax import config
from benchmax.errors import ConfigError

VARIABLES = ["BASE_DOMAIN", "PLATFORM_URL", "WEB_APP_URL", "LLM_URL", "AUTH_URL", "ROLLOUT_URL", "API_KEY"]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(f"CASTFORM_{name}", raising=False)
        monkeypatch.delenv(f"BENCHMAX_{name}", raising=False)
    for name in ("OPENAI_API_KEY", "PLATFORM_API_KEY", "ACT_AS_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_defaults_are_the_published_addresses():
    assert config.base_domain() == "castform.com"
    assert config.platform_url() == "https://api.castform.com"
    assert config.web_app_url() == "https://app.castform.com"
    assert config.llm_url() == "https://llm.castform.com/v1"
    assert config.auth_url() == "https://auth.castform.com"
    assert config.rollout_url() == "https://autobots.castform.com"


def test_settings_are_read_at_each_call(monkeypatch):
    monkeypatch.setenv("CASTFORM_BASE_DOMAIN", "example.org")
    assert config.llm_url() == "https://llm.example.org/v1"
    monkeypatch.setenv("CASTFORM_LLM_URL", "http://127.0.0.1:9000/v1/")
    assert config.llm_url() == "http://127.0.0.1:9000/v1"


def test_a_platform_of_ones_own_answers_for_its_models_and_its_token_stays_there(monkeypatch):
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", "http://127.0.0.1:8123")
    monkeypatch.setenv("CASTFORM_API_KEY", "platform")
    assert config.llm_url() == "http://127.0.0.1:8123/v1"
    assert config.resolve_judge_key(None, config.llm_url()) == "platform"
    assert config.resolve_judge_key(None, "https://llm.castform.com/v1") is None
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", "https://api.castform.com/")
    assert config.llm_url() == "https://llm.castform.com/v1"


def test_benchmax_variables_win_and_blanks_do_not_count(monkeypatch):
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", "https://one.example")
    monkeypatch.setenv("BENCHMAX_PLATFORM_URL", "  ")
    assert config.platform_url() == "https://one.example"
    monkeypatch.setenv("BENCHMAX_PLATFORM_URL", "https://two.example")
    assert config.platform_url() == "https://two.example"


@pytest.mark.parametrize("address", ["localhost:8000", "http://", "https:///path"])
def test_an_address_without_a_scheme_or_host_is_told_how_to_write_it(monkeypatch, address):
    monkeypatch.setenv("BENCHMAX_PLATFORM_URL", address)
    with pytest.raises(ConfigError, match="http://host:port"):
        config.platform_url()


def test_env_token_reads_late_and_says_what_is_missing(monkeypatch):
    token = config.env_token("MY_JUDGE_KEY")
    with pytest.raises(ConfigError, match="MY_JUDGE_KEY"):
        token()
    monkeypatch.setenv("MY_JUDGE_KEY", " sk-1 ")
    assert token() == "sk-1"


def test_judge_key_order(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "openai")
    monkeypatch.setenv("CASTFORM_API_KEY", "platform")
    assert config.resolve_judge_key("mine", config.llm_url()) == "mine"
    assert config.resolve_judge_key("", config.llm_url()) == "platform"
    assert config.resolve_judge_key(None, "https://api.openai.com/v1") == "openai"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert config.resolve_judge_key(None, "https://api.openai.com/v1") is None


@pytest.mark.parametrize(
    "url",
    [
        "http://llm.castform.com/v1",  # not encrypted
        "http://llm.castform.com:443/v1",
        "https://llm.castform.com:8443/v1",
        "https://llm.castform.com.evil.example/v1",
        "https://evil.example/llm.castform.com",
        "https://llm.castform.com@evil.example/v1",
        "https://evilcastform.com/v1",
        "https://[broken",
        "",
    ],
)
def test_the_platform_token_goes_to_the_platform_only(monkeypatch, url):
    monkeypatch.setenv("CASTFORM_API_KEY", "platform")
    assert config.resolve_judge_key(None, url) is None


def test_platform_token_order(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHMAX_API_KEY", "key")
    assert config.platform_token() == "key"
    monkeypatch.setenv("PLATFORM_API_KEY", "platform")
    assert config.platform_token() == "platform"
    (tmp_path / "token").write_text("acting\n")
    monkeypatch.setenv("ACT_AS_TOKEN_PATH", str(tmp_path / "token"))
    assert config.platform_token() == "acting"
    monkeypatch.setenv("ACT_AS_TOKEN_PATH", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match="unset"):
        config.platform_token()


def test_config_stays_small():
    assert len(inspect.getsource(config).splitlines()) < 120
