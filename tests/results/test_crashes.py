"""What the log of a process has of its crash."""

from __future__ import annotations

import sysconfig

from testbed.results.failures import crash_in

LOG = f"""a library's line
Fatal Python error: Segmentation fault

Current thread 0x00007f1 (most recent call first):
  File "{sysconfig.get_path("stdlib")}/ctypes/__init__.py", line 519 in string_at
  File "/home/me/mine.py", line 38 in encode
  File "/opt/x/site-packages/torch/a.py", line 3 in step
"""


def test_a_crash_is_told_with_the_place_in_the_users_code() -> None:
    assert crash_in(LOG) == "Segmentation fault, in /home/me/mine.py:38"
    assert crash_in(LOG.replace("/home/me/", "/opt/x/site-packages/mine/")) == "Segmentation fault"


def test_a_log_without_a_crash_says_nothing() -> None:
    assert crash_in("") == crash_in('Traceback (most recent call last):\n  File "/home/me/mine.py", line 3\n') == ""
