"""`python -m analysis.probe`."""

from analysis.probe.command import main
from travlr import cli

if __name__ == "__main__":
    cli.run("analysis.probe", main)
