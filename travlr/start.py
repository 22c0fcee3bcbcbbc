"""How each command begins: Ctrl-C ends it without a traceback from the first moment on.

A command's module calls `start_command` before its own imports, which may take seconds. Imports nothing slow itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def start_command(program: str, module: str) -> NoReturn:
    """Import the module of a command, and run its `main` as `travlr.cli.run` does.

    While modules are imported, Ctrl-C ends the process at once, as nothing is begun yet that could be lost: an
    exception in the midst of an import would be printed, or even swallowed, by what is being imported.
    """
    try:
        import signal
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    answers = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a process in the background does not
    if answers:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from importlib import import_module

    from travlr import cli

    main = import_module(module).main
    if answers:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.run(program, main)
