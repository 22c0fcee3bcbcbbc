"""`python -m analysis.probe`."""

from travlr.start import start_command

if __name__ == "__main__":
    start_command("analysis.probe", "analysis.probe.command")
