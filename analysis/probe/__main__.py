"""`python -m analysis.probe`."""

from analysis.probe.command import command

if __name__ == "__main__":
    command()
