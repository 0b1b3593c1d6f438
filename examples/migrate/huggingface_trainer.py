"""Hugging Face: the Trainer of `transformers`, a model with random weights (nothing is downloaded).

    python examples/migrate/huggingface_trainer.py
    torchrun --nproc-per-node 2 examples/migrate/huggingface_trainer.py

Expected: one run with `train/loss`, `train/grad_norm`, `eval/loss`, and the timers `time/train_step` and
`time/optimizer` of the slowest rank.
"""

from __future__ import annotations

import tempfile

from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from otel_ml.integrations.huggingface import OtelMLCallback

CONFIG = BertConfig(vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)


def rows(count: int) -> list[dict[str, object]]:
    return [{"input_ids": [1, 2 + i % 2, 3], "attention_mask": [1, 1, 1], "labels": i % 2} for i in range(count)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            report_to="none",  # only the callback below reports
            max_steps=20,
            logging_steps=5,
            eval_strategy="steps",
            eval_steps=10,
            save_strategy="no",
            learning_rate=1e-2,
            per_device_train_batch_size=4,
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            BertForSequenceClassification(CONFIG),
            arguments,
            train_dataset=rows(64),
            eval_dataset=rows(8),
            callbacks=[OtelMLCallback("huggingface", name="tiny-bert")],
        )
        trainer.train()


if __name__ == "__main__":
    main()
