"""Environments for reinforcement learning: endless training examples, each with the exact reward of `travlr.rewards`.

One module for each library: `gymnasium`, `reasoning_gym`, `verifiers`. Each needs the library that it is named after.
"""
