"""Tiny models from a config, and a task of words that they can learn; nothing is downloaded."""

import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

torch.set_num_threads(1)

SIZES = {"vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 64, "max_position_embeddings": 16}  # fmt: skip


def bert(**options):
    torch.manual_seed(0)
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(**SIZES, **{**plain, **options}))


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, pad_token_id=0))


def lora(model, kind, layers):
    return get_peft_model(model, LoraConfig(task_type=kind, r=4, target_modules=layers))


MODELS = {
    "bert": bert,
    "bert with LoRA": lambda: lora(bert(), TaskType.SEQ_CLS, ["query", "value"]),
    "llama": llama,
    "llama with LoRA": lambda: lora(llama(), TaskType.CAUSAL_LM, ["q_proj", "v_proj"]),
}


@pytest.fixture
def model():
    return lambda name: MODELS[name]()


@pytest.fixture
def sentences():
    """Records of 8 to 12 words; the label says whether word 1 or word 2 comes first."""

    def make(count=120, seed=0, tokens=False):
        generator = torch.Generator().manual_seed(seed)
        found = []
        for _ in range(count):
            label = int(torch.randint(0, 2, (), generator=generator))
            length = int(torch.randint(8, 13, (), generator=generator))
            words = torch.randint(3, 30, (length,), generator=generator)
            words[:4] = 1 + label
            padded = torch.zeros(12, dtype=torch.long)
            padded[:length] = words
            mask = (torch.arange(12) < length).long()
            labels = torch.where(mask == 1, padded, -100) if tokens else torch.tensor(label)
            found.append({"input_ids": padded, "attention_mask": mask, "labels": labels})
        return found

    return make


@pytest.fixture
def arguments(tmp_path):
    def make(**options):
        plain = {"output_dir": str(tmp_path / "out"), "num_train_epochs": 1, "report_to": "none",
                 "per_device_train_batch_size": 20, "logging_steps": 2, "save_strategy": "no",
                 "disable_tqdm": True, "use_cpu": True, "learning_rate": 1e-2}  # fmt: skip
        return TrainingArguments(**{**plain, **options})

    return make
