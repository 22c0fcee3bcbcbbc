"""The training command: `python train.py --help`."""

from train.command import main
from travlr import cli

if __name__ == "__main__":
    cli.run("train", main)
