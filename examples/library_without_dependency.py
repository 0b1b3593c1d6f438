"""A library that instruments itself, for applications with and without otel_ml.

    python examples/library_without_dependency.py

The library below works where otel_ml is not installed (its timers are then plain functions), costs next to nothing
where the application never calls `init()`, and shows up in the application's run where it does.
Expected: 10 steps of `time/tokenize` and of `tokenizer/tokens` (the sum of a step's calls: 6).
"""

from __future__ import annotations

# ---- the library ----------------------------------------------------------------------------------------------------
try:
    from otel_ml import record, timed
except ImportError:

    def timed(function):
        return function

    def record(name, value, **options):
        pass


@timed
def tokenize(text: str) -> list[str]:
    tokens = text.split()
    record("tokenizer/tokens", len(tokens), reduce="sum")
    return tokens


# ---- an application that uses it ------------------------------------------------------------------------------------
def main() -> None:
    import otel_ml

    with otel_ml.init("library"):
        for _ in otel_ml.steps(range(10)):
            tokenize("to be or")
            tokenize("not to be")


if __name__ == "__main__":
    main()
