# SPDX-License-Identifier: Apache-2.0
"""LoRA on a tiny BERT, made from a config: which of two words begins a sentence, under a budget."""

import numpy as np
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from dosimeter.integrations.transformers import PrivateTrainer


def sentences(count: int) -> list[dict[str, torch.Tensor]]:
    """Twelve words each, of which the first four tell the label."""
    words, labels = torch.randint(3, 30, (count, 12)), torch.randint(0, 2, (count,))
    words[:, :4] = 1 + labels[:, None]
    return [{"input_ids": w, "labels": label} for w, label in zip(words, labels, strict=True)]


def accuracy(found) -> dict[str, float]:
    """The share of sentences that were told apart."""
    return {"accuracy": float(np.mean(found.predictions.argmax(-1) == found.label_ids))}


def main() -> None:
    """Trains, then says how well and what holds."""
    set_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    lora = LoraConfig(task_type=TaskType.SEQ_CLS, r=8, target_modules=["query", "value"])
    trainer = PrivateTrainer(
        (8.0, 1e-4),
        model=get_peft_model(BertForSequenceClassification(config), lora),
        args=TrainingArguments(
            output_dir="out",
            num_train_epochs=15,
            per_device_train_batch_size=100,
            learning_rate=1e-2,
            logging_steps=30,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=sentences(1000),
        eval_dataset=sentences(200),
        compute_metrics=accuracy,
    )
    trainer.train()
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")
    print(trainer.engine.guarantee())


if __name__ == "__main__":
    main()
