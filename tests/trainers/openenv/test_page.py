"""What the page installs is what is tested; its other commands are run beside the server and the imports."""

from __future__ import annotations

from trainer_pages import check_page


def test_the_page_installs_what_is_tested_here():
    check_page("openenv", "openenv")
