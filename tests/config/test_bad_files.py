"""Every mistake has a file that makes it, named after it; its comment lines are the exact messages."""

import os
import re
from pathlib import Path

import pytest

from controller.config import ConfigError, load, loads
from tests.support.installed import only_test_plugins

BAD = Path(__file__).parent / "bad"
FILES = sorted(BAD.glob("*.yaml"))


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    only_test_plugins(monkeypatch)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_mistake_is_named_with_its_line_its_path_and_its_mend(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    expected = [line.removeprefix("# ") for line in lines if re.match(r"# (\d+: )?\S", line)]
    with pytest.raises(ConfigError) as caught:
        load(path)
    found = [line.removeprefix(f"{path}:").strip() for line in str(caught.value).splitlines()]
    assert found == [line for line in expected if line != "nothing but a comment"]


def test_the_folder_of_bad_files_was_not_lost() -> None:
    assert len(FILES) > 80


def test_each_problem_says_what_to_do() -> None:
    for path in FILES:
        with pytest.raises(ConfigError) as caught:
            load(path)
        silent = [p for p in caught.value.problems if not p.mend]
        assert not silent, path.name


def test_a_mistake_does_not_hide_a_contradiction_elsewhere() -> None:
    """A validator that stops at the first phase makes its user run it once per mistake."""
    with pytest.raises(ConfigError) as caught:
        load(BAD / "many-mistakes-at-once.yaml")
    kinds = {problem.path.rsplit(".", 1)[-1] for problem in caught.value.problems}
    assert kinds == {"engine", "deadline", "target", "min", "mdoe"}


def test_a_missing_file_and_a_binary_file_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory; check the path"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"version: 1\n\xff\xfe")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 11\); save it as UTF-8 text"):
        load(binary)
    with pytest.raises(ConfigError, match="not valid YAML"):
        loads("version: 1\x00")


def test_a_pipe_or_device_that_nobody_writes_to_is_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="is a pipe or a device, which may never end; name a plain file"):
            load(path)


def test_what_a_shell_hands_over_can_still_be_checked(tmp_path: Path) -> None:
    """`governor check <(make-config)`: a pipe without a name, which whoever made it fills."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        file.write("version: 2\n")
    with os.fdopen(reader), pytest.raises(ConfigError, match="is not a version this Governor knows"):
        load(Path(f"/dev/fd/{reader}"))


def test_a_bomb_of_brackets_is_refused_rather_than_crashing() -> None:
    with pytest.raises(ConfigError, match="nested too deep"):
        loads("version: 1\npools: " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match="nested too deep"):
        loads("version: 1\npools: " + "[" * 60 + "]" * 60)
