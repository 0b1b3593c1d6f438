"""A study of Optuna with trials in threads of one process: each trial is a run, and the study is one, too.

    pip install optuna
    python examples/optuna_threads.py

Expected: nine runs below `otel-ml-runs/optuna`: `study`, with the best value after each trial, and `trial-0` to
`trial-7`, each with 20 values of `loss` that are its own, and its learning rate as a parameter. `otel-ml runs` lists
them. The last line printed names the trial with the least loss.
"""

from __future__ import annotations

import optuna

import otel_ml

TRIALS, STEPS = 8, 20


def objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 0.01, 0.9, log=True)
    with otel_ml.init("optuna", name=f"trial-{trial.number}", params=trial.params) as run:
        weight = 4.0
        for _ in otel_ml.steps(range(STEPS)):
            loss = weight**2
            otel_ml.log({"loss": loss})  # into this thread's run
            weight -= lr * 2 * weight * 0.5
        run.summary({"final_loss": loss})
    return loss


def main() -> None:
    with otel_ml.init("optuna", name="study") as study_run:

        def told(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            study_run.log({"best": study.best_value}, step=trial.number, reduce="min")

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(objective, n_trials=TRIALS, n_jobs=4, callbacks=[told])
    print(f"best: trial-{study.best_trial.number}, loss {study.best_value:.3g}, lr {study.best_params['lr']:.3g}")


if __name__ == "__main__":
    main()
