"""The training command: `python train.py --help`."""

from travlr.start import start_command

if __name__ == "__main__":
    start_command("train", "train.command")
