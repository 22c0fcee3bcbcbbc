"""Ctrl-C while a command begins: no traceback, at whatever it is importing or reading its settings.

A hook sends the signal when a named module is about to be imported, so nothing here depends on time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT, command, interruptible, one_line

HOOK = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == os.environ["INTERRUPT_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""
COMMANDS: dict[str, tuple[list[str], list[str]]] = {  # how it is called, and at what it is interrupted
    "generate": (
        ["-m", "travlr.generate", "task=cardinality"],
        ["travlr.cli", "argparse", "numpy", "pyarrow", "hydra"],
    ),
    "audit": (["-m", "travlr.audit", "d"], ["travlr.cli", "numpy", "pyarrow.parquet"]),
    "browse": (["-m", "travlr.browse", "d"], ["travlr.cli", "numpy", "pyarrow"]),
    "convert": (["-m", "travlr.convert", "d", "e", "format=parquet"], ["travlr.cli", "numpy", "omegaconf"]),
    "train": (["train.py", "device=gpu"], ["travlr.cli", "omegaconf", "hydra", "numpy"]),
    "report": (["-m", "analysis.report", "runs"], ["travlr.cli", "numpy"]),
    "probe": (["-m", "analysis.probe", "count=0"], ["travlr.cli", "hydra"]),
    "variation": (["-m", "analysis.probe.variation", "--help"], ["travlr.cli", "numpy", "PIL"]),
    "heatmaps": (["-m", "analysis.probe.heatmaps", "--help"], ["travlr.cli", "torch"]),
    "negatives": (["-m", "analysis.probe.negatives", "--help"], ["travlr.cli", "analysis.probe.corpora.lexicon"]),
    "try_it": (["-m", "analysis.probe.try_it", "--help"], ["travlr.cli", "numpy"]),
}


def interrupted(arguments: list[str], at: str, tmp_path: Path, ignored: bool = False) -> tuple[int, str]:
    """Exit code and stderr of a command that gets the signal of Ctrl-C when it is about to import a module."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join([str(tmp_path / "hook"), str(ROOT)])
    arguments = [str(ROOT / "train.py") if argument == "train.py" else argument for argument in arguments]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "INTERRUPT_AT": at},
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else interruptible,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, (_, places) in COMMANDS.items() for at in places])
def test_no_command_prints_a_traceback(name: str, at: str, tmp_path: Path) -> None:
    code, err = interrupted(COMMANDS[name][0], at, tmp_path)
    assert code in (-signal.SIGINT, 130), err  # as it was interrupted, not because it came to its end
    assert not err or f"{name}: stopped" in one_line(err)


def test_a_command_in_the_background_goes_on(tmp_path: Path) -> None:
    """Shells let background jobs ignore Ctrl-C."""
    assert interrupted(["-m", "travlr.audit", "--help"], "numpy", tmp_path, ignored=True) == (0, "")


SWALLOWED = """
import os, signal, sys
from travlr import cli

def main(arguments):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        raise ValueError("a value was only half read")

cli.run("x", main)
"""


def test_an_interrupt_that_a_library_turns_into_another_error_is_one_still() -> None:
    code, out, err = command("", code=SWALLOWED)
    assert (code, out) == (130, "") and one_line(err).startswith("x: stopped")


DROPPED = """
import os, signal, time
from travlr import cli

class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

def main(arguments):
    for _ in range(3):
        closing = Closing()
        del closing
    time.sleep(60)

cli.run("x", main)
"""


def test_an_interrupt_during_a_del_is_not_lost() -> None:
    code, out, err = command("", code=DROPPED)
    assert (code, out) == (130, "") and one_line(err).startswith("x: stopped")
