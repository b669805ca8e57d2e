"""A run on two ranks, started by torchrun."""

import json
import os
import pathlib
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

import dosimeter as dm
from dosimeter.integrations.transformers import PrivateTrainer


def main(folder):
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 16, "max_position_embeddings": 16}  # fmt: skip
    model = BertForSequenceClassification(BertConfig(**sizes))
    words = torch.randint(1, 30, (60, 8))
    data = [{"input_ids": row, "labels": row[0] % 2} for row in words]
    settings = TrainingArguments(
        output_dir=str(folder / "out"), num_train_epochs=2, per_device_train_batch_size=5,
        report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True)  # fmt: skip
    trainer = PrivateTrainer(dm.Odometer(delta=1e-6), model, settings, noise_multiplier=1.0,
                             physical_batch_size=3, train_dataset=data)  # fmt: skip
    trainer.train()
    engine = trainer.engine
    told = {
        "steps": engine.steps,
        "spends": engine.spends,
        "epsilon": engine.epsilon,
        "parameters": [p.sum().item() for p in model.parameters()],
    }
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
