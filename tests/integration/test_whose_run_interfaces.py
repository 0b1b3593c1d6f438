"""Whose run it is, by callbacks, loggers and the interfaces of other trackers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_whose_run import ids_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

THREADS = """
    import threading
    {imports}
    barrier = threading.Barrier(3)
    {trial}
    threads = [threading.Thread(target=trial, args=(n,)) for n in (1, 2, 3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""

WANDB = """
    def trial(n):
        run = wandb.init(project="sweep", name=f"trial-{n}", config={"lr": n}, reinit="create_new")
        barrier.wait(30)
        for s in range(3):
            run.log({"loss": 100.0 * n + s})
        run.finish()
"""

MLFLOW = """
    def trial(n):
        with mlflow.start_run(run_name=f"trial-{n}"):
            barrier.wait(30)
            mlflow.log_param("lr", n)
            for s in range(3):
                mlflow.log_metric("loss", 100.0 * n + s, step=s)
            assert mlflow.active_run().info.run_name == f"trial-{n}"
"""


@pytest.mark.parametrize(
    ("imports", "trial"),
    [
        ("from otel_ml.compat import wandb", WANDB),
        ("from otel_ml.compat import mlflow; mlflow.set_experiment('sweep')", MLFLOW),
    ],
    ids=["wandb", "mlflow"],
)
def test_runs_of_threads_are_runs_of_their_own(server: OtlpServer, tmp_path: Path, imports: str, trial: str) -> None:
    run(THREADS.format(imports=imports, trial=trial), environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "loss") == {f"trial-{n}": [100.0 * n + s for s in range(3)] for n in (1, 2, 3)}
    params = {event.resource["ml.run.name"]: event.body for event in server.events("ml.params")}
    assert {name: body["lr"] for name, body in params.items()} == {f"trial-{n}": n for n in (1, 2, 3)} or {
        name: body["lr"] for name, body in params.items()
    } == {f"trial-{n}": str(n) for n in (1, 2, 3)}
    assert {point.resource["ml.experiment.name"] for point in server.points("loss")} == {"sweep"}


def test_a_wandb_run_that_is_created_beside_leaves_the_functions_of_the_module_to_the_first(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    from otel_ml.compat import wandb
    first = wandb.init(project="p", name="first")
    second = wandb.init(project="p", name="second", reinit="create_new")
    wandb.log({"x": 1})
    second.log({"x": 2})
    second.finish()
    wandb.log({"x": 3})
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "x") == {"first": [1.0, 3.0], "second": [2.0]}


@pytest.mark.parametrize("reinit", ["None", "'finish_previous'"])
def test_a_wandb_init_with_another_name_finishes_the_run_before(
    server: OtlpServer, tmp_path: Path, reinit: str
) -> None:
    program = f"""
    from otel_ml.compat import wandb
    for n in (1, 2):
        wandb.init(project="p", name=f"seed-{{n}}", reinit={reinit})
        wandb.log({{"x": n}})
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "x") == {"seed-1": [1.0], "seed-2": [2.0]}


def test_a_context_of_itwinai_that_shutdown_has_ended_does_not_keep_the_next_one_from_its_run(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import otel_ml
    from otel_ml.compat.itwinai import ConsoleLogger
    first = ConsoleLogger()
    first.create_logger_context()
    first.log(1.0, "m", kind="metric", step=0)
    otel_ml.shutdown()
    second = ConsoleLogger()
    second.create_logger_context()
    second.log(2.0, "m", kind="metric", step=0)
    second.destroy_logger_context()
    assert first.run_id != second.run_id
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "m")) == 2
    assert len(server.events("ml.writer.end")) == 2


TRAINER = """
    import otel_ml, torch, transformers
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from otel_ml.integrations.huggingface import OtelMLCallback

    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    data = [{"input_ids": torch.arange(4) + i, "labels": i % 2} for i in range(8)]

    def model(trial=None):
        return BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))

    def trainer(callback):
        arguments = TrainingArguments("out", max_steps=2, logging_steps=1, save_strategy="no", eval_strategy="steps",
                                      eval_steps=2, report_to="none", use_cpu=True, disable_tqdm=True)
        return Trainer(args=arguments, train_dataset=data, eval_dataset=data, model_init=model, callbacks=[callback])

    callback = OtelMLCallback("folds")
"""


@pytest.mark.parametrize(
    ("program", "runs"),
    [
        ("for _ in range(2): trainer(callback).train(); otel_ml.shutdown()", 2),
        (
            "trainer(callback).hyperparameter_search("
            "lambda trial: {'learning_rate': trial.suggest_categorical('learning_rate', [1e-5, 1e-4])}, "
            "backend='optuna', n_trials=3)",
            3,
        ),
    ],
    ids=["shutdown", "search"],
)
def test_each_training_of_a_trainers_callback_is_a_run_of_its_own(
    server: OtlpServer, tmp_path: Path, program: str, runs: int
) -> None:
    run(f"{TRAINER}\n    {program}", environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "train/loss")) == runs
    assert len(server.points("train/loss")) == 2 * runs


def test_a_lightning_logger_begins_a_new_run_with_the_training_after_shutdown(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import lightning, otel_ml
    from lightning.pytorch.demos.boring_classes import BoringModel
    from otel_ml.integrations.lightning import OtelMLLogger

    class Model(BoringModel):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)["loss"]
            self.log("train_loss", loss)
            return loss

    logger = OtelMLLogger("folds", log_model=False)
    versions = []
    for _ in range(2):
        lightning.Trainer(
            max_epochs=1, limit_train_batches=2, limit_val_batches=0, log_every_n_steps=1, logger=logger,
            accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        ).fit(Model())
        versions.append(logger.version)
        otel_ml.shutdown()
        assert logger.version == versions[-1]  # to ask begins nothing
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "train_loss")) == 2
    assert len(server.points("train_loss")) == 4
    assert len(server.events("ml.writer.end")) == 2


FOLDS = """
    callback_of = {callbacks}
    trainers = []
    for fold in range(2):
        trainers.append(trainer(callback_of(fold)))
        trainers[-1].args.run_name = {name}
        trainers[-1].train()
    trainers[0].evaluate()
"""


@pytest.mark.parametrize(
    ("callbacks", "name", "runs"),
    [
        ("lambda fold: OtelMLCallback('folds')", "f'fold-{fold}'", [2, 2]),
        ("lambda fold: otel_ml.init('folds', name=f'fold-{fold}') and callback", "'other'", [2, 2]),
        ("lambda fold: OtelMLCallback('folds')", "None", [4]),
        ("(lambda one: lambda fold: one)(OtelMLCallback('folds'))", "f'fold-{fold}'", [2, 2]),
        ("(lambda one: lambda fold: one)(OtelMLCallback('folds'))", "None", [4]),
    ],
    ids=["run names", "runs of the program", "no names", "run names, one callback", "no names, one callback"],
)
def test_a_training_that_has_a_name_is_recorded_into_the_run_of_that_name(
    server: OtlpServer, tmp_path: Path, callbacks: str, name: str, runs: list[int]
) -> None:
    program = f"{TRAINER}\n{FOLDS.format(callbacks=callbacks, name=name)}"

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert sorted(map(len, values_of(server, "train/loss").values())) == runs
    assert errors.count("goes on with the run that another one has begun") == (runs == [4])
    if runs != [4] and "OtelMLCallback('folds'" in callbacks:  # fold-0's own evaluation after fold-1 had begun
        assert len(values_of(server, "eval/loss")["fold-0"]) == 2


def test_trainers_of_lightning_record_into_the_runs_of_their_own_loggers(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import lightning, otel_ml
    from lightning.pytorch.demos.boring_classes import BoringModel
    from otel_ml.integrations.lightning import OtelMLLogger, OtelMLTiming

    class Model(BoringModel):
        def __init__(self, fold):
            super().__init__()
            self.fold = fold

        def training_step(self, batch, index):
            self.log("own", float(self.fold))
            otel_ml.log({"bare": self.fold})
            return super().training_step(batch, index)["loss"]

        def validation_step(self, batch, index):
            otel_ml.log({"bare": self.fold})

        def test_step(self, batch, index):
            self.log("tested", float(self.fold))

    def trainer(fold):
        return lightning.Trainer(
            max_epochs=1, limit_train_batches=2, limit_val_batches=1, limit_test_batches=1, log_every_n_steps=1,
            logger=OtelMLLogger("cv", name=f"fold-{fold}", log_model=False), callbacks=[OtelMLTiming()],
            accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )

    trainers = [trainer(fold) for fold in range(2)]
    for test in (False, True):
        for fold, each in enumerate(trainers):
            (each.test if test else each.fit)(Model(fold))
    otel_ml.log({"after": 1}, step=9)  # into the one that was begun last, as before
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "own") == {"fold-0": [0.0, 0.0], "fold-1": [1.0, 1.0]}
    assert {name: set(values) for name, values in values_of(server, "bare").items()} == {
        "fold-0": {0.0},
        "fold-1": {1.0},
    }
    assert values_of(server, "eval/bare") == {"fold-0": [0.0], "fold-1": [1.0]}
    assert values_of(server, "tested") == {"fold-0": [0.0], "fold-1": [1.0]}
    assert set(values_of(server, "time/forward")) == {"fold-0", "fold-1"}
    assert set(values_of(server, "after")) == {"fold-1"}


def test_lines_of_logging_are_in_the_run_of_who_logs_them(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import logging, otel_ml
    from otel_ml.integrations.log_handler import LogHandler
    logger = logging.getLogger("train")
    logger.addHandler(LogHandler(logging.WARNING))
    first, second = otel_ml.init(name="first"), otel_ml.init(name="second")
    for n in range(3):
        with first.use():
            logger.warning("one %d", n)
        with second.use():
            logger.warning("two %d", n)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    said: dict[str, list[str]] = {}
    for text in server.events("ml.text"):
        lines = [line.rpartition(": ")[2] for line in str(text.body).splitlines()]
        said.setdefault(text.resource["ml.run.name"], []).extend(lines)
    assert said == {"first": ["one 0", "one 1", "one 2"], "second": ["two 0", "two 1", "two 2"]}


def test_a_line_of_logging_that_is_nobodys_among_several_runs_is_counted_and_said(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import logging, threading, otel_ml
    from otel_ml._internal.run_scope import NOBODY
    from otel_ml.integrations.log_handler import LogHandler
    logger = logging.getLogger("train")
    logger.addHandler(LogHandler(logging.WARNING))
    def fold(name):
        with otel_ml.init(name=name):
            pass
        logger.warning(name)  # while others go on
    runs = [otel_ml.init(name=name) for name in ("first", "second")]
    for name in ("one", "two"):
        thread = threading.Thread(target=fold, args=(name,))
        thread.start()
        thread.join()
    print(dict(NOBODY.dropped))
    """

    counted, said = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert counted == "{'no_run': 2}\n"
    assert said.count("It is not in any run (no_run)") == 1
    assert server.events("ml.text") == []
