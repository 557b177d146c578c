"""What counts as a change of the config file."""

import os
from pathlib import Path

import pytest

from controller.config.errors import ConfigError, Problem
from controller.run.reload import ConfigWatch, Retry, problems_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "governor.yaml"
    path.write_text("a: 1\n")
    return path


def test_a_half_written_file_is_loaded_with_half_of_its_pools(file: Path) -> None:
    watch = ConfigWatch(file)
    file.write_text("a: 2\n")
    assert not watch.changed(), "new content must come to rest first"
    file.write_text("a: 2\nb: 3\n")
    assert not watch.changed()
    assert watch.changed()
    assert not watch.changed(), "one change, one reload"


def test_same_size_and_time_hide_a_change(file: Path) -> None:
    before = file.stat()
    watch = ConfigWatch(file)
    file.write_text("a: 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [watch.changed(), watch.changed()] == [False, True]


def test_touching_the_file_is_no_change(file: Path) -> None:
    watch = ConfigWatch(file)
    os.utime(file, (1, 1))
    assert not any(watch.changed() for _ in range(3))


def test_a_vanished_config_is_overlooked(file: Path) -> None:
    watch = ConfigWatch(file)
    file.unlink()
    assert [watch.changed(), watch.changed(), watch.changed()] == [False, True, False]
    file.write_text("a: 1\n")
    assert [watch.changed(), watch.changed()] == [False, True]


def test_a_signal_and_the_watch_reload_the_same_change_twice(file: Path) -> None:
    watch = ConfigWatch(file)
    file.write_text("a: 2\n")
    watch.accept()
    assert not any(watch.changed() for _ in range(3))


def test_every_mistake_of_a_config_has_its_own_line() -> None:
    error = ConfigError([Problem("pools.a", "is empty", "give it a value", 7), Problem("", "unknown")], "g.yaml")
    assert problems_of(error) == ("g.yaml:7: pools.a: is empty; give it a value", "g.yaml: unknown")
    assert problems_of(OSError("disk")) == ("OSError: disk",)


def test_a_reload_that_keeps_failing_is_tried_at_every_look_for_ever() -> None:
    retry, now, tried = Retry(look=2.0), 0.0, []
    retry.failed(now)
    while now < 3600.0:
        now += 2.0
        if retry.due(now):
            tried.append(now)
            retry.failed(now)
    assert tried[:4] == [4.0, 12.0, 28.0, 60.0]
    assert tried[-1] - tried[-2] == 300.0
    retry.forget()
    assert not retry.due(now + 1e6)
