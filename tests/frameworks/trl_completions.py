"""A program: GRPO that logs completions, in the folder `out` beside the run, where TRL writes them too."""

from __future__ import annotations

from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from otel_ml.integrations.huggingface import OtelMLCallback
from tests.examples.running import EXAMPLES


def main() -> None:
    example: dict[str, object] = {"__name__": "example"}
    exec((EXAMPLES / "trl_grpo_evaluation.py").read_text(), example)
    words = example["tokenizer"]()
    prompts = Dataset.from_list([{"prompt": prompt} for prompt in example["PROMPTS"]])
    arguments = GRPOConfig(
        output_dir="out",
        report_to="none",
        max_steps=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="no",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        log_completions=True,
    )
    GRPOTrainer(
        example["saved_model"](words, Path("model")),
        reward_funcs=[lengths],
        args=arguments,
        train_dataset=prompts,
        eval_dataset=prompts.select(range(4)),
        processing_class=words,
        callbacks=[OtelMLCallback("trl", exporters="jsonl")],
    ).train()


def lengths(completions: list[str], log_extra: object = None, **_: object) -> list[float]:
    log_extra("letters", [sum(letter.isalpha() for letter in text) for text in completions])
    return [len(text) / 10 for text in completions]


if __name__ == "__main__":
    main()
