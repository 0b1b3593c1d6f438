"""A small classifier in numpy: one hidden layer, cross-entropy, gradient descent with momentum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from otel_ml_service.demo.digits import Batch

__all__ = ["Network"]

Floats = npt.NDArray[np.float32]


class Network:
    """64 pixels → hidden units → 10 digits; all parameters lie in one flat array, `parameters`."""

    def __init__(self, hidden: int, seed: int) -> None:
        self._shapes = ((64, hidden), (hidden,), (hidden, 10), (10,))
        random = np.random.default_rng(seed)
        # He et al. 2015, for layers that a ReLU follows: the deviation is √(2 / inputs); biases begin at 0.
        scales = (np.sqrt(2 / 64), 0.0, np.sqrt(2 / hidden), 0.0)
        self.parameters: Floats = np.concatenate(
            [
                scale * random.standard_normal(int(np.prod(shape)))
                for shape, scale in zip(self._shapes, scales, strict=True)
            ]
        ).astype(np.float32)
        self._velocity = np.zeros_like(self.parameters)

    def forward(self, batch: Batch) -> tuple[float, float]:
        """Return loss and accuracy, and remember what `backward` needs."""
        w1, b1, w2, b2 = self._split(self.parameters)
        self._batch = batch
        self._hidden = np.maximum(batch.images @ w1 + b1, 0)
        scores = self._hidden @ w2 + b2
        # Else exp() of a large score would be infinite.
        scores -= scores.max(axis=1, keepdims=True)
        self.probabilities: Floats = np.exp(scores)
        self.probabilities /= self.probabilities.sum(axis=1, keepdims=True)
        right = self.probabilities[np.arange(len(batch.labels)), batch.labels]
        loss = float(-np.log(right + 1e-12).mean())
        return loss, float((self.predicted == batch.labels).mean())

    @property
    def predicted(self) -> npt.NDArray[np.int64]:
        """The digit of each image of the last `forward`."""
        digits: npt.NDArray[np.int64] = np.argmax(self.probabilities, axis=1)
        return digits

    def backward(self) -> Floats:
        """Return the gradient of the last loss, flat like `parameters`."""
        _, _, w2, _ = self._split(self.parameters)
        count = len(self._batch.labels)
        error = self.probabilities.copy()
        # The derivative of cross-entropy by the scores: each probability, less 1 for the right digit.
        error[np.arange(count), self._batch.labels] -= 1
        error /= count
        hidden_error = (error @ w2.T) * (self._hidden > 0)
        return np.concatenate(
            [
                (self._batch.images.T @ hidden_error).ravel(),
                hidden_error.sum(axis=0),
                (self._hidden.T @ error).ravel(),
                error.sum(axis=0),
            ]
        )

    def update(self, gradient: Floats, learning_rate: float, momentum: float = 0.9) -> None:
        """Take one step of gradient descent."""
        self._velocity = momentum * self._velocity - learning_rate * gradient
        self.parameters += self._velocity

    def save(self, path: Path) -> None:
        """Write the parameters; the file appears whole."""
        # With this ending: savez adds it to any other name.
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, parameters=self.parameters)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Read parameters that `save` wrote."""
        with np.load(path) as archive:
            self.parameters = archive["parameters"]

    def _split(self, flat: Floats) -> list[Floats]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), self._shapes, strict=True)]
