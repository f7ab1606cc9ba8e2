"""Conditions on rows, as people write them: `n > 5 and carrier in ('AA', 'UA') and worst.delay is null`.

The grammar is that of Python's expressions, with `=` for `==`, `<>` for `!=`, `null`, and `is null`: names of
columns (with dots for fields of structs), numbers, texts in quotes, true, false; comparisons, `in` with a
list, `and`, `or`, `not`, parentheses. A text is read as what the column that it is compared with is: a date,
say.
"""

from __future__ import annotations

import ast
import io
import token
import tokenize
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.dataset.keys import scalar_of
from state_store.errors import OptionError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

_WORDS = {"null": "None", "true": "True", "false": "False", "and": "and", "or": "or", "not": "not"}
_WORDS |= {"in": "in", "is": "is"}
_SIGNS = {"=": "==", "<>": "!="}


def condition(text: str, schema: pyarrow.Schema) -> pyarrow.compute.Expression:
    """The condition as an expression over columns of `schema`. Raises OptionError that says what is wrong."""
    try:
        return _Reader(schema).boolean(ast.parse(_as_python(text), mode="eval").body)
    except (SyntaxError, tokenize.TokenError) as error:
        raise OptionError(f"'{text}' is no condition: {error.args[0]}", option="--where") from error


def _as_python(text: str) -> str:
    tokens = []
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        string = one.string
        if one.type == token.NAME:
            string = _WORDS.get(string.lower(), string)
        elif one.type == token.OP:
            string = _SIGNS.get(string, string)
        tokens.append((one.type, string))
    # `<>` comes as two signs
    joined: list[tuple[int, str]] = []
    for kind, string in tokens:
        if string == ">" and joined and joined[-1][1] == "<":
            joined[-1] = (token.OP, "!=")
        else:
            joined.append((kind, string))
    return tokenize.untokenize(joined).strip()


class _Reader:
    """Turns what Python's parser makes into expressions of Arrow's."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._schema = schema

    def boolean(self, node: ast.expr) -> pyarrow.compute.Expression:
        if isinstance(node, ast.BoolOp):
            parts = [self.boolean(one) for one in node.values]
            expression = parts[0]
            for part in parts[1:]:
                expression = expression & part if isinstance(node.op, ast.And) else expression | part
            return expression
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.boolean(node.operand)
        if isinstance(node, ast.Compare):
            return self._comparisons(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._column(node)[0]
        raise self._wrong(node)

    def _comparisons(self, node: ast.Compare) -> pyarrow.compute.Expression:
        operands = [node.left, *node.comparators]
        expression = None
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            one = self._comparison(left, operator, right)
            expression = one if expression is None else expression & one
        assert expression is not None
        return expression

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> pyarrow.compute.Expression:
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._wrong(right)
            column, _ = self._column(left)
            return column.is_null() if isinstance(operator, ast.Is) else column.is_valid()
        if isinstance(operator, (ast.In, ast.NotIn)):
            return self._membership(left, right, wanted=isinstance(operator, ast.In))
        kind = self._kind(left) or self._kind(right)
        first, second = self._operand(left, kind), self._operand(right, kind)
        compared = {
            ast.Eq: lambda: first == second,
            ast.NotEq: lambda: first != second,
            ast.Lt: lambda: first < second,
            ast.LtE: lambda: first <= second,
            ast.Gt: lambda: first > second,
            ast.GtE: lambda: first >= second,
        }
        return compared[type(operator)]()

    def _membership(self, left: ast.expr, right: ast.expr, *, wanted: bool) -> pyarrow.compute.Expression:
        import pyarrow

        column, kind = self._column(left)
        if not isinstance(right, (ast.Tuple, ast.List, ast.Constant)):
            raise self._wrong(right)
        members = right.elts if isinstance(right, (ast.Tuple, ast.List)) else [right]
        values = pyarrow.array([self._value(one, kind).as_py() for one in members], kind)
        found = column.isin(values)
        return found if wanted else ~found

    def _operand(self, node: ast.expr, kind: pyarrow.DataType | None) -> Any:
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._column(node)[0]
        return self._value(node, kind)

    def _kind(self, node: ast.expr) -> pyarrow.DataType | None:
        return self._column(node)[1] if isinstance(node, (ast.Name, ast.Attribute)) else None

    def _column(self, node: ast.expr) -> tuple[pyarrow.compute.Expression, pyarrow.DataType]:
        import pyarrow
        import pyarrow.compute

        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            raise self._wrong(node)
        path.insert(0, node.id)
        if path[0] not in self._schema.names:
            raise OptionError(
                f"there is no column '{path[0]}'; there are: {', '.join(self._schema.names)}",
                option="--where",
            )
        kind = self._schema.field(path[0]).type
        for name in path[1:]:
            if not pyarrow.types.is_struct(kind) or kind.get_field_index(name) < 0:
                raise OptionError(f"'{'.'.join(path)}' has no field '{name}'", option="--where")
            kind = kind.field(name).type
        return pyarrow.compute.field(*path) if len(path) > 1 else pyarrow.compute.field(path[0]), kind

    def _value(self, node: ast.expr, kind: pyarrow.DataType | None) -> pyarrow.Scalar:
        import pyarrow

        try:
            value = ast.literal_eval(node)
        except ValueError as error:
            raise self._wrong(node) from error
        if kind is None:
            return pyarrow.scalar(value)
        try:
            if isinstance(value, str) and not pyarrow.types.is_string(kind):
                return scalar_of(value, kind)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return pyarrow.scalar(value)
            return pyarrow.scalar(value, kind)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise OptionError(f"{value!r} cannot be compared with {kind}", option="--where") from error

    def _wrong(self, node: ast.expr) -> OptionError:
        return OptionError(
            f"'{ast.unparse(node)}' cannot stand in a condition, such as: n > 5 and name in ('a', 'b')",
            option="--where",
        )
