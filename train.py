"""The training command: `python train.py --help`."""

from train.command import command

if __name__ == "__main__":
    command()
