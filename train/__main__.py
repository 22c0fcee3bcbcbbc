"""The training command where there is no `train.py`: `python -m train --help`."""

from train.command import command

if __name__ == "__main__":
    command()
