"""Settings and device approval, by hand in a browser: what is made works, what is secret is never shown again."""

from __future__ import annotations

import re

import pytest
from console_world import EMAIL, PASSWORD, ConsoleWorld

from benchmax.platform.store.tables import DeviceCode

GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@pytest.fixture(scope="module")
def world(console, tmp_path_factory):
    with ConsoleWorld(tmp_path_factory.mktemp("settings"), console=console) as server:
        yield server


def button(page, name, **more):
    return page.get_by_role("button", name=name, **more)


def row(page, text):
    return page.get_by_role("row").filter(has_text=text)


def test_a_key_is_shown_once_works_as_scoped_and_ends_when_revoked(open_page, world):
    page = open_page("/settings")
    button(page, "New key").click()
    page.get_by_label("Name").fill("reader")
    page.get_by_role("checkbox", name=re.compile("Write")).uncheck()
    page.get_by_label("Expires after").select_option("7")
    button(page, "Create key").click()
    text = page.get_by_test_id("new-key").inner_text()
    with world.client(text) as client:
        assert client.get("/v1/whoami").json()["scopes"] == ["read"]
        assert client.post("/v1/keys", json={}).status_code == 403
    button(page, "I have copied it").click()
    row(page, "reader").get_by_text("in 7 days").wait_for()
    row(page, "reader").get_by_text(f"sk_{text.split('_')[1]}_…").wait_for()
    assert text not in page.content()
    page.reload()
    row(page, "reader").wait_for()
    assert text.split("_", 2)[2] not in page.content()
    button(page, "Revoke the key reader").click()
    button(page, "Revoke it").click()
    row(page, "reader").wait_for(state="detached")
    with world.client(text) as client:
        assert client.get("/v1/whoami").status_code == 401
    page.get_by_label(re.compile("revoked and expired")).check()
    row(page, "reader").get_by_text("revoked").wait_for()
    page.wait_for_url(re.compile(r"\?old=1$"))


def test_a_key_needs_a_name(open_page, world):
    page = open_page("/settings/keys")
    button(page, "New key").click()
    for name in ("", "   "):
        page.get_by_label("Name").fill(name)
        button(page, "Create key").click()
        assert page.get_by_label("Name").evaluate("(input) => !input.validity.valid")
    assert page.get_by_test_id("new-key").count() == 0
    page.get_by_label("Name").fill("named")
    button(page, "Create key").click()
    page.get_by_test_id("new-key").wait_for()


def test_a_key_needs_a_scope(open_page):
    page = open_page("/settings/keys")
    button(page, "New key").click()
    for name in ("Read", "Write"):
        page.get_by_role("checkbox", name=re.compile(name)).uncheck()
    button(page, "Create key", disabled=True).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")


def test_an_endpoint_keeps_its_key_to_itself(open_page):
    page = open_page("/settings/endpoints")
    button(page, "New endpoint").click()
    page.get_by_label("Name").fill("big")
    page.get_by_label("Base URL").fill("http://10.1.2.3:8000/v1")
    page.get_by_label("Model").fill("qwen3-32b")
    page.get_by_label("API key").fill("sk-very-secret")
    button(page, "Add it").click()
    row(page, "qwen3-32b").get_by_text("stored").wait_for()
    assert "sk-very-secret" not in page.content()
    button(page, "New endpoint").click()
    page.get_by_label("Name").fill("big")
    page.get_by_label("Base URL").fill("http://10.1.2.3:8000/v1")
    page.get_by_label("Model").fill("other")
    page.watch.allow("400")
    button(page, "Add it").click()
    page.get_by_role("alert").get_by_text("You have an endpoint 'big' already").wait_for()
    button(page, "Cancel").click()
    button(page, "Remove the endpoint big").click()
    button(page, "Remove it").click()
    page.get_by_text("No endpoints yet").wait_for()


def test_a_secret_goes_in_and_never_comes_out(open_page, world):
    page = open_page("/settings/secrets")
    page.get_by_label("Name").fill("2BAD")
    page.get_by_text("no digit first").wait_for()
    page.get_by_label("Name").fill("SEARCH_KEY")
    page.get_by_label("Value").fill("hunter22")
    page.get_by_label("Value").press("Enter")
    row(page, "SEARCH_KEY").get_by_text("hidden").wait_for()
    assert page.get_by_label("Value").input_value() == ""
    assert "hunter22" not in page.content()
    page.get_by_label("Name").fill("SEARCH_KEY")
    button(page, "Replace").wait_for()
    button(page, "Remove the secret SEARCH_KEY").click()
    button(page, "Remove it").click()
    page.get_by_text("No secrets yet").wait_for()


def test_an_administrator_adds_a_user_who_sees_only_themselves(open_page, world, browser):
    page = open_page("/settings/users")
    row(page, EMAIL).get_by_text("you", exact=True).wait_for()
    button(page, "New user").click()
    page.get_by_label("E-mail").fill("grace@example.org")
    page.get_by_label("Password").fill("a long password")
    button(page, "Add the user").click()
    row(page, "grace@example.org").get_by_text("member").wait_for()
    hers = open_page("/settings/users", signed_in=False)
    hers.watch.allow("401")
    hers.get_by_label("E-mail").fill("grace@example.org")
    hers.get_by_label("Password").fill("a long password")
    button(hers, "Sign in", exact=True).click()
    row(hers, "grace@example.org").wait_for()
    assert row(hers, EMAIL).count() == 0
    assert button(hers, "New user").count() == 0
    button(page, "Remove the user grace@example.org").click()
    button(page, "Remove the user", exact=True).click()
    row(page, "grace@example.org").wait_for(state="detached")


def test_the_audit_log_says_who_did_what_and_its_filter_is_in_the_address(open_page, world):
    with world.client(world.user(EMAIL)[1]) as client:
        client.put("/v1/secrets/AUDITED", json={"value": "x"})
        client.delete("/v1/secrets/AUDITED")
    page = open_page("/settings/audit?q=secret.delete")
    row(page, "AUDITED").get_by_text("127.0.0.1").wait_for()
    assert row(page, "secret.set").count() == 0
    page.get_by_label("Filter the audit log").fill("secret.set")
    row(page, "secret.set").first.wait_for()
    page.wait_for_url(re.compile(r"q=secret\.set"))


# Device approval


def ask(world):
    """A device that asks; gives the answer with its codes."""
    with world.client() as client:
        return client.post("/api/auth/device/code", json={"client_id": "castform-cli"}).json()


def poll(world, code):
    with world.client() as client:
        return client.post(
            "/api/auth/device/token", json={"grant_type": GRANT, "device_code": code["device_code"]}
        ).json()


def test_a_device_is_looked_at_and_approved(open_page, world):
    code = ask(world)
    page = open_page(code["verification_uri_complete"].removeprefix(world.url))
    page.get_by_text(code["user_code"]).wait_for()
    page.get_by_text("castform-cli").wait_for()
    page.get_by_text("127.0.0.1", exact=True).wait_for()
    button(page, "Approve").click()
    page.get_by_role("heading", name="The device is signed in").wait_for()
    token = poll(world, code)["access_token"]
    with world.client(token) as client:
        assert client.get("/v1/whoami").json()["email"] == EMAIL


def test_a_code_typed_in_any_way_can_be_denied(open_page, world):
    code = ask(world)
    page = open_page("/device")
    page.get_by_label("Code").press_sequentially(code["user_code"].replace("-", "").lower())
    assert page.get_by_label("Code").input_value() == code["user_code"]
    page.keyboard.press("Enter")
    button(page, "Deny").click()
    page.get_by_role("heading", name="The device is denied").wait_for()
    assert poll(world, code) == {"error": "access_denied"}


@pytest.mark.parametrize("old", [False, True])
def test_an_unknown_or_old_code_says_so(open_page, world, old):
    shown = "BCDF-GHJK"
    if old:
        shown = ask(world)["user_code"]
        with world.database.write() as session:
            found = session.query(DeviceCode).filter_by(user_code=shown).one()
            found.expires = 1.0
    page = open_page(f"/device?user_code={shown}")
    page.watch.allow("404")
    page.get_by_text("No device waits with this code. Check it; a code works for 30 minutes.").wait_for()
    assert page.get_by_label("Code").input_value() == shown


def test_a_stranger_signs_in_first_and_then_decides(open_page, world):
    code = ask(world)
    page = open_page(f"/device?user_code={code['user_code']}", signed_in=False)
    page.watch.allow("401")
    page.get_by_label("E-mail").fill(EMAIL)
    page.get_by_label("Password").fill("correct horse battery")
    button(page, "Sign in", exact=True).click()
    page.get_by_text(code["user_code"]).wait_for()
    button(page, "Approve").wait_for()


def test_a_webhook_is_added_tried_and_removed(open_page, world):
    page = open_page("/settings/webhooks")
    page.get_by_text("No webhooks yet").wait_for()
    button(page, "New webhook").click()
    page.get_by_label("Address").fill("http://169.254.169.254/latest")
    button(page, "Add it").click()
    page.get_by_role("alert").get_by_text("may not be called from here").wait_for()
    page.get_by_label("Address").fill("http://127.0.0.1:1/hook")
    page.get_by_role("checkbox", name=re.compile("Ends")).uncheck()
    button(page, "Add it").click()
    secret = page.get_by_test_id("webhook-secret").inner_text()
    assert secret.startswith("whsec_")
    button(page, "Done").click()
    made = row(page, "127.0.0.1:1/hook")
    made.get_by_text("alerts").wait_for()
    assert made.get_by_text("ends").count() == 0
    assert secret not in page.content()
    button(made, "Messages to").click()
    button(page, "Send a test message").click()
    sent = page.get_by_role("dialog").get_by_role("row").filter(has_text="test")
    sent.get_by_text("It cannot be reached: Connection refused.").wait_for()
    sent.get_by_text("retrying").wait_for()
    page.keyboard.press("Escape")
    button(page, "Remove the webhook").click()
    button(page, "Remove it").click()
    page.get_by_text("No webhooks yet").wait_for()
    page.watch.allow("400")


def test_a_password_is_changed_and_every_session_ended(browser, open_page, tmp_path, console):
    with ConsoleWorld(tmp_path, console=console) as own:
        page = open_page("/settings/account", to=own)
        page.watch.allow("401")
        for current, new, again, said in (
            ("not this one", "another password", "another password", "The current password is wrong."),
            (PASSWORD, "another password", "something else!", "The passwords do not match."),
            (PASSWORD, "another password", "another password", "The password is changed"),
        ):
            page.get_by_label("Current password").fill(current)
            page.get_by_label("New password", exact=True).fill(new)
            page.get_by_label("Repeat the new password").fill(again)
            button(page, "Change it").click()
            page.get_by_text(said).wait_for()
        with own.client() as client:
            form = {"email": EMAIL, "password": "another password"}
            assert client.post("/login", json=form).status_code == 200
        button(page, "Sign out everywhere").click()
        button(page.get_by_role("dialog"), "Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        page.reload()
        page.get_by_role("heading", name="Sign in").wait_for()
