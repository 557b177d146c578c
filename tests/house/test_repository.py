"""What is in the repository: nothing of one machine, no dead link, no command that does not exist."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from controller.cli.app import app
from controller.config import loads
from tests.support.repository import ROOT, texts

PROSE = sorted(texts(".md"))


def test_a_path_of_one_machine_breaks_all_others() -> None:
    # The last letters stand in brackets so that this file does not find itself.
    machine = re.compile(r"(?<![\w.~}*-])/(?:roo[t]|wor[k]|hom[e]|User[s])/\w")
    hosts = re.compile(r"pypi\.or[g]|pythonhoste[d]\.|artifactor[y]|index-ur[l]")
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if machine.search(line) or (hosts.search(line) and "--no-emit" not in line)
    ]
    assert found == []


def test_a_test_that_sleeps_is_slow_when_it_passes_and_flaky_when_it_fails() -> None:
    sleeping = re.compile(r"\b(?:time\.|asyncio\.)?sleep\((?!0\))")
    found = [
        f"{path}:{number}"
        for path, text in texts(".py").items()
        if path.parts[0] == "tests" and path.name != Path(__file__).name
        for number, line in enumerate(text.splitlines(), 1)
        if sleeping.search(line)
    ]
    assert found == []


def anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings, and explicit ones."""
    headings = re.findall(r"^#+ +(.+?) *$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


@pytest.mark.parametrize("page", PROSE, ids=str)
def test_a_dead_link_sends_the_reader_nowhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for pair in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text):
        link = "".join(pair)
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (ROOT / page.parent / file).resolve() if file else ROOT / page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            dead.append(link)
    assert dead == []


def commands(tool: str) -> set[tuple[str, str, str]]:
    """(page, sub-command, its arguments) of every `tool sub-command ...` that the prose shows as code."""
    found = set()
    for page, text in texts(".md").items():
        code = re.findall(r"```(?:\w+)?\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
        for piece in code:
            found |= {
                (str(page), name, rest)
                for name, rest in re.findall(rf"^(?:\$ )?{tool} ([a-z][a-z-]+)([^#|>\n]*)", piece, re.MULTILINE)
            }
    return found


def test_the_readme_names_a_make_target_that_does_not_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {(page, name) for page, name, _ in commands("make")}
    assert {("README.md", "demo"), ("README.md", "test")} <= shown
    assert {(page, name) for page, name in shown if name not in targets} == set()


def test_the_docs_name_a_command_or_an_option_that_does_not_exist() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    shown = commands("governor")
    assert ("README.md", "check") in {(page, name) for page, name, _ in shown}
    flags = {
        name: {"--help"}.union(*((*param.opts, *param.secondary_opts) for param in command.params))
        for name, command in known.items()
    }
    wrong = [
        f"{page}: governor {name} {option}"
        for page, name, rest in shown
        for option in (re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest) if name in known else [""])
        if not option or option not in flags[name]
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PROSE, ids=str)
def test_a_config_in_the_docs_that_is_refused(page: Path) -> None:
    blocks = re.findall(r"```yaml\n(version: .*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks or page != Path("README.md")
    for block in blocks:
        loads(block)  # raises ConfigError, which says what is wrong


def test_a_release_without_a_line_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.search(
        rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_a_page_that_nothing_leads_to_is_never_read() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = {path.name for path in texts(".md") if path.parent == Path("docs")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()
