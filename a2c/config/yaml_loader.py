"""Read YAML of plain scalars, lists and mappings within limits: a few lines with aliases can expand beyond the memory.

A key that is given twice is an error, and 010 and 1:30 are not read as 8 and 90.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

LARGEST = 20_000  # values and characters, counted again for each alias and merge key
DEEPEST = 20  # nested lists and mappings
LONGEST_NUMBER = 100  # characters


def load_yaml(text: str) -> Any:
    """Read one document.

    Raises:
        yaml.MarkedYAMLError: if the text is not YAML, or not of this kind; its `problem` says why.
        Exception: anything else that PyYAML raises on hostile text.
    """
    return yaml.load(text, _Loader)


class _Loader(yaml.SafeLoader):
    """Counts the content of nodes while they are composed, so that nothing beyond the limits is built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._held = 0  # values and characters in all nodes so far
        self._keys: list[str] = []  # the path to the current node
        self._depth = 0  # of the current node
        self._deepest = 0  # the greatest depth reached within the current node
        self._repeats: dict[str, tuple[int, int]] = {}  # by anchor: the size and height of what an alias repeats

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; `index` is its key's node, or its position in a list."""
        key = index.value if isinstance(index, yaml.ScalarNode) else None
        self._keys += [] if key is None else [key]
        node = self._alias(parent, index) if self.check_event(yaml.AliasEvent) else self._node(parent, index)
        if key is not None:
            self._keys.pop()
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Raise on a second value for a key; values merged by `<<` may be overridden."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.composer.ComposerError(None, None, f"{key.value} is given twice", key.start_mark)
                seen.add(key.value)
        return node

    def _alias(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor in self.anchors and event.anchor not in self._repeats:
            raise self._error("an alias stands for what it is in", event.start_mark)
        held, height = self._repeats.get(event.anchor, (0, 0))
        self._count(held, event.start_mark)
        self._reach(self._depth + height, event.start_mark)
        return super().compose_node(parent, index)

    def _node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if event.tag is not None:
            raise self._error(f"the tag {event.tag} is not known here", event.start_mark)
        before, outer = self._held, self._deepest
        self._depth += 1
        self._deepest = 0
        self._reach(self._depth, event.start_mark)
        self._count(1 + len(getattr(event, "value", "")), event.start_mark)
        node = super().compose_node(parent, index)
        self._check_number(node)
        self._depth -= 1
        if event.anchor is not None:
            self._repeats[event.anchor] = self._held - before, self._deepest - self._depth
        self._deepest = max(self._deepest, outer)
        return node

    def _reach(self, depth: int, mark: Any) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > DEEPEST:
            raise self._error(f"lists and mappings are more than {DEEPEST} deep", mark)

    def _count(self, more: int, mark: Any) -> None:
        self._held += more
        if self._held > LARGEST:
            raise self._error(f"it holds more than {LARGEST:,} values and letters", mark)

    def _check_number(self, node: Any) -> None:
        if node.tag in (_INT, _FLOAT) and len(node.value) > LONGEST_NUMBER:
            problem = f"a number of {len(node.value):,} digits, and at most {LONGEST_NUMBER} are read"
            raise self._error(problem, node.start_mark)

    def _error(self, problem: str, mark: Any) -> yaml.MarkedYAMLError:
        where = ".".join(self._keys)
        return yaml.composer.ComposerError(None, None, f"{where}: {problem}" if where else problem, mark)


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_KNOWN = (_FLOAT, "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KNOWN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _INT, re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$"), list("-+0123456789")
)
