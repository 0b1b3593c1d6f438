"""`wandb.Graph`: the nodes and edges of a model, kept as a text."""

from __future__ import annotations

import json
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.media import Media

__all__ = ["Graph", "Node"]


class Node:
    """A node of a graph, most often a layer."""

    def __init__(
        self,
        id: Any = None,  # noqa: A002 (W&B's name)
        name: str | None = None,
        class_name: str | None = None,
        size: Any = None,
        parameters: Any = None,
        output_shape: Any = None,
        is_output: bool | None = None,
        num_parameters: Any = None,
        node: Any = None,
    ) -> None:
        del node
        self.id = id
        self.name = name
        self.class_name = class_name
        self.size = size
        self.parameters = parameters
        self.output_shape = output_shape
        self.is_output = is_output
        self.num_parameters = num_parameters

    def described(self) -> dict[str, Any]:
        """Return what was said of it."""
        return {name: value for name, value in vars(self).items() if value is not None}


class Graph(Media):
    """A graph of a model."""

    def __init__(self, format: str = "keras") -> None:  # noqa: A002 (W&B's name)
        self.format = format
        self.nodes: list[Node] = []
        self.nodes_by_id: dict[Any, Node] = {}
        self.edges: list[tuple[Node, Node]] = []
        self._model = ""

    @classmethod
    def from_keras(cls, model: Any) -> Graph:
        """Return that of a model, which is kept as the text that it prints as."""
        graph = cls()
        graph._model = text_of(model)
        return graph

    def __getitem__(self, nid: Any) -> Node:
        return self.nodes_by_id[nid]

    def add_node(self, node: Node | None = None, **node_kwargs: Any) -> Node:
        """Add a node, or the one that is described."""
        added = Node(**node_kwargs) if node is None else node
        self.nodes.append(added)
        self.nodes_by_id[added.id] = added
        return added

    def add_edge(self, from_node: Node, to_node: Node) -> tuple[Node, Node]:
        """Add an edge."""
        self.edges.append((from_node, to_node))
        return self.edges[-1]

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it as a text."""
        not_kept(f"wandb.Graph in {name!r}", "it is kept as text.")
        described = {
            "format": self.format,
            "nodes": [node.described() for node in self.nodes],
            "edges": [[one.id, other.id] for one, other in self.edges],
        }
        otel_ml.log_text(name, self._model or json.dumps(described, default=text_of), step=step, axis=axis)
