"""Fine-tuning of chat models: `python train.py model=FOLDER`, with TRL's trainers and PEFT's adapters.

Read `config` (the settings) first, then `tune`. The examples are those of `travlr.finetuning`; `train.ask` asks
the finished model.
"""
