"""The evaluation command: `python evaluate.py --help`."""

from train.ask.command import command

if __name__ == "__main__":
    command()
