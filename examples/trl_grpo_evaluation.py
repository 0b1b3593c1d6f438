"""TRL: GRPO with evaluation, on a model with random weights and a tokenizer made here (nothing is downloaded).

    python examples/trl_grpo_evaluation.py
    torchrun --nproc-per-node 2 examples/trl_grpo_evaluation.py

The reward function is called in training and in evaluation, and records with `otel_ml.log()` in both.

Expected: one run in which `my/reward` is that of training alone and equal to TRL's own `train/reward`, and
`eval/my/reward` that of the evaluations and equal to TRL's `eval/reward`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import otel_ml
from otel_ml.integrations.huggingface import OtelMLCallback

PROMPTS = [f"what is {number % 9} plus {number % 7} ?" for number in range(64)]


def reward(completions: list[str], **_: object) -> list[float]:
    """Like long answers."""
    rewards = [len(completion) / 10 for completion in completions]
    otel_ml.log({"my/reward": rewards})  # in an evaluation it is `eval/my/reward`
    return rewards


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<unk>", "<pad>", "<s>", "</s>"]
    made.train_from_iterator(PROMPTS, trainers.BpeTrainer(vocab_size=300, special_tokens=special))
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        padding_side="left",
    )


def saved_model(words: PreTrainedTokenizerFast, folder: Path) -> str:
    """Save a model of two layers, as one from a hub is loaded."""
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def main() -> None:
    words = tokenizer()
    prompts = Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS])
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder,
            report_to="none",  # only the callback below reports
            max_steps=6,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="no",
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        )
        GRPOTrainer(
            saved_model(words, Path(folder, "model")),
            reward_funcs=[reward],
            args=arguments,
            train_dataset=prompts,
            eval_dataset=prompts.select(range(8)),
            processing_class=words,
            callbacks=[OtelMLCallback("trl-grpo")],
        ).train()


if __name__ == "__main__":
    main()
