"""Write PrimFuncs as readable Python source that numba compiles."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.codegen.analysis import called_names, has_parallel_loop, unique_nodes, uses
from tilewright.codegen.numba_ import intrinsics as intrinsics  # registers the writer of each intrinsic
from tilewright.codegen.numba_.expressions import ExpressionWriter, bare, storage
from tilewright.codegen.numba_.places import is_whole, offset_of, product, span
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, Var, binary, cast
from tilewright.tensorir.functor import loads_and_stores, substitute
from tilewright.tensorir.node import Node
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from tilewright.tensorir.tensor_intrins import TensorIntrin, called_intrin

#: What the names of C functions begin with in the source.
C_PREFIX = "c_"

#: A function that calls more others than this is interpreted by Python.
MOST_COMPILED_CALLS = 16


class FunctionWriter(ExpressionWriter):
    """Writes one function."""

    def __init__(
        self,
        root: PrimFunc,
        helpers: set[str],
        functions: Mapping[str, PrimFunc],
        python_names: Mapping[str, str],
        instructions: set[str],
        accesses: dict[str, str],
    ) -> None:
        super().__init__(root, helpers, accesses)
        #: The names of the instructions whose C functions are called.
        self.instructions = instructions
        self.functions = functions
        self.python_names = python_names
        self.lines: list[str] = []
        #: For each line, the statement that it was written for; None before the first one.
        self.makers: list[Stmt | None] = []
        self._statement: Stmt | None = None
        self.depth = 1
        #: Names of array slices by their source: a slice that several calls take is made once.
        self.parts: dict[str, str] = {}
        self._in_parallel = False
        for name in python_names.values():
            self.names.fresh(name)

    def line(self, text: str, deeper: int = 0) -> None:
        """Append a line at the current depth, or deeper."""
        self.lines.append("    " * (self.depth + deeper) + text)
        self.makers.append(self._statement)

    def begin(self, stmt: Stmt, *parts: Expr | None) -> None:
        """Begin a statement with these expressions."""
        self.begin_statement(stmt, [part for part in parts if part is not None])

    def flush(self, *lines: str) -> None:
        """Append the lines of a statement, preceded by those that its scalar expressions need."""
        for text in (*self.before, *lines):
            self.line(text)
        self.before = []

    def body(self, stmt: Stmt | None) -> None:
        """Write an indented block."""
        outside, self.parts = self.parts, dict(self.parts)
        self.depth += 1
        count = len(self.lines)
        if stmt is not None:
            self.statement(stmt)
        if len(self.lines) == count:
            self.line("pass")
        self.depth -= 1
        self.parts = outside

    def statement(self, stmt: Stmt) -> None:
        """Write ``stmt``."""
        writer = _STATEMENTS.get(type(stmt))
        if writer is None:
            self.error(stmt, f"cannot generate code for statements of class {type(stmt).__name__}")
        outer, self._statement = self._statement, stmt
        writer(self, stmt)
        self._statement = outer

    def function(self) -> str:
        """Write the whole function; return its source."""
        params = []
        for param in self.root.params:
            name = self.names.fresh(param.name)
            params.append(name)
            if isinstance(param, Buffer):
                self.buffers[param] = name
            else:
                self.variables[param] = name
                if param.dtype != "int64":
                    self.line(f"{name} = np.{param.dtype!s}({name})")
        self.statement(self.root.body)
        if not self.lines:
            self.line("pass")
        parallel = "parallel=True, " if has_parallel_loop(self.root.body) else ""
        # Without the wrapper for C, which is never called and takes a tenth of numba's time.
        head = f'@numba.njit({parallel}fastmath={{"contract"}}, error_model="numpy", no_cfunc_wrapper=True)'
        lines = [f"def {self.python_names[self.root.name]}({', '.join(params)}):", *self.lines, ""]
        return "\n".join(lines if self._only_passes_on(params) else [head, *lines])

    def _only_passes_on(self, params: Sequence[str]) -> bool:
        """Return whether Python should interpret the function: it only calls others, either one with its own arguments
        (numba would take as long to compile that as the callee, and it is the entry of every model of one kernel), or
        many, which numba takes minutes to compile."""
        if uses(self.root.body).has_profile:
            return True  # only Python has a clock
        if not only_calls(self.root):
            return False
        calls = list(_calls(self.root.body))
        if any(self.root.name in called_names(func.body) for func in self.functions.values()):
            return False  # compiled code can only call compiled code
        if len(calls) > MOST_COMPILED_CALLS:
            return True
        if len(calls) > 1:
            return False
        line = ast.parse(self.lines[-1].strip()).body[0]
        call = line.value if isinstance(line, ast.Expr) else None
        return isinstance(call, ast.Call) and all(isinstance(arg, ast.Name) and arg.id in params for arg in call.args)

    def _sequence(self, stmt: SeqStmt) -> None:
        for part in stmt.stmts:
            self.statement(part)

    def _for(self, loop: For) -> None:
        self.begin(loop, loop.min, loop.extent)
        first = bare(self.expr(loop.min))
        end = bare(self.expr(binary("add", loop.min, loop.extent)))
        bounds = end if first == "0" else f"{first}, {end}"
        name = self.names.fresh(loop.var.name)
        parallel = loop.kind == "parallel" and not self._in_parallel
        # numba infers an unsigned type for the index of a parallel loop; its sums with signed integers would be floats.
        convert = parallel or loop.var.dtype != "int64"
        raw = self.names.fresh(f"{name}_") if convert else name
        note = f"  # {loop.kind}" if loop.kind in ("vectorized", "unrolled") else ""
        outside = dict(self.buffers)
        if parallel:
            self._view_scalars(loop)
        self.flush(f"for {raw} in {'numba.prange' if parallel else 'range'}({bounds}):{note}")
        self.variables[loop.var] = name
        outer, self._in_parallel = self._in_parallel, self._in_parallel or parallel
        if convert:
            self.line(f"{name} = np.{loop.var.dtype!s}({raw})", deeper=1)
        self.body(loop.body)
        self._in_parallel = outer
        self.buffers.update(outside)
        if parallel:
            self.single.clear()

    def _view_scalars(self, loop: For) -> None:
        """Make arrays of one dimension of those without any that a parallel loop accesses: numba passes the number that
        such an array holds to the body of the loop, which it takes for an array."""
        for buffer in dict.fromkeys(access.buffer for access in loads_and_stores(loop.body)):
            if not buffer.shape and buffer in self.buffers:
                view = self.names.fresh(buffer.name)
                self.line(f"{view} = {self.buffers[buffer]}.reshape(1)")
                self.buffers[buffer] = view
                self.single.add(buffer)

    def _store(self, stmt: BufferStore) -> None:
        self.begin(stmt, stmt.value, *stmt.indices, stmt.predicate)
        dtype = stmt.value.dtype
        value = self.to_memory(dtype, self.expr(stmt.value))
        condition = None if stmt.predicate is None else bare(self.expr(stmt.predicate))
        place = self.element(stmt)
        if dtype.lanes == 1:
            if condition is None:
                self.flush(f"{place} = {value}")
            else:
                self.flush(f"if {condition}:", f"    {place} = {value}")
            return
        inside = [f"    {line}" for line in self.inside]
        guard = [f"    if {condition}:"] if condition is not None else []
        indent = "        " if guard else "    "
        head = f"for lane in range({dtype.lanes}):"
        if self._reads_other_lanes(stmt):
            # Read all lanes before the first is written.
            name = self.names.fresh("lanes")
            self.flush(
                f"{name} = np.empty({dtype.lanes}, np.{storage(dtype)})", head, *inside, f"    {name}[lane] = {value}"
            )
            self.flush(head, *inside, *guard, f"{indent}{place} = {name}[lane]")
        else:
            self.flush(head, *inside, *guard, f"{indent}{place} = {value}")

    @staticmethod
    def _reads_other_lanes(stmt: BufferStore) -> bool:
        loads = [
            node
            for part in (stmt.value, *stmt.indices, *([stmt.predicate] if stmt.predicate is not None else []))
            for node in unique_nodes(part)
            if isinstance(node, BufferLoad) and node.buffer is stmt.buffer
        ]
        return any(load.indices != stmt.indices for load in loads)

    def _let(self, stmt: LetStmt) -> None:
        self.begin(stmt, stmt.value)
        value, dtype = bare(self.expr(stmt.value)), stmt.value.dtype
        name = self.names.fresh(stmt.var.name)
        if dtype.lanes == 1:
            self.flush(f"{name} = {value}")
        else:
            kind = "float32" if storage(dtype) == "uint16" and dtype.is_float else storage(dtype)
            inside = [f"    {line}" for line in self.inside]
            head = f"for lane in range({dtype.lanes}):"
            self.flush(f"{name} = np.empty({dtype.lanes}, np.{kind})", head, *inside, f"    {name}[lane] = {value}")
        self.variables[stmt.var] = name
        self.statement(stmt.body)

    def _instruction(self, stmt: Stmt, call: Expr, intrin: TensorIntrin, loops: Stmt | None) -> None:
        """Write a call of a user's instruction, or the loops that describe it if it has no C function."""
        assert isinstance(call, Call)
        if intrin.cfunc is None:
            if loops is not None:
                self.statement(loops)
            return
        self.begin(stmt)
        args = []
        for arg in call.args:
            if not (isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], BufferLoad)):
                args.append(bare(self.expr(arg)))
                continue
            access = arg.args[0]
            name = self.buffers.get(access.buffer)
            if name is None:
                self.error(access, f"buffer {access.buffer.name} is neither a parameter nor allocated here")
            flat = name if len(access.buffer.shape) == 1 or access.buffer.strides else f"{name}.reshape(-1)"
            # ``ctypes`` keeps an array alive until the call ends, unlike its address.
            args.append(f"{flat}[{bare(self.expr(offset_of(access)))} :].ctypes")
        self.instructions.add(intrin.name)
        self.flush(f"{C_PREFIX}{intrin.name}({', '.join(args)})")

    def _if(self, stmt: IfThenElse) -> None:
        intrin = called_intrin(stmt.condition)
        if intrin is not None:
            self._instruction(stmt, stmt.condition, intrin, stmt.else_body)
            return
        self.begin(stmt, stmt.condition)
        self.flush(f"if {bare(self.expr(stmt.condition))}:")
        self.body(stmt.then_body)
        if stmt.else_body is not None:
            self.line("else:")
            self.body(stmt.else_body)

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        self.begin(stmt, *buffer.shape)
        shape = ", ".join(bare(self.expr(extent)) for extent in buffer.shape)
        name = self.names.fresh(buffer.name)
        self.buffers[buffer] = name
        shape = f"({shape})" if len(buffer.shape) != 1 else shape
        if buffer.strides:
            shape = bare(self.expr(span(buffer)))
        note = f"  # {buffer.scope}" if buffer.scope in ("register", "stack") else ""
        self.flush(f"{name} = np.empty({shape}, np.{storage(buffer.dtype)}){note}")
        self.statement(stmt.body)

    def _evaluate(self, stmt: Evaluate) -> None:
        call = stmt.value
        if isinstance(call, Call) and call.name == "prefetch":
            return  # a hint to the processor that Python cannot express
        if isinstance(call, Call) and call.name in PROFILE_INTRINSICS:
            self._profile(stmt, call)
            return
        intrin = called_intrin(call)
        if intrin is not None:
            self._instruction(stmt, call, intrin, None)
            return
        if not (isinstance(call, Call) and call.name.startswith("@")):
            self.begin(stmt, call)
            self.flush(self.expr(call))
            return
        self.begin(stmt)
        callee = self.functions.get(call.name[1:])
        if callee is None:
            self.error(call, f"the function {call.name} is not in this module")
        if len(callee.params) != len(call.args):
            self.error(call, f"{call.name} takes {len(callee.params)} arguments, found {len(call.args)}")
        pairs = list(zip(callee.params, call.args, strict=True))
        sizes = {
            param: cast(param.dtype, arg) for param, arg in pairs if isinstance(param, Var) and arg.dtype.is_integer
        }
        args = [self._argument(call, param, arg, sizes) for param, arg in pairs]
        self.flush(f"{self.python_names[callee.name]}({', '.join(args)})")

    def _profile(self, stmt: Evaluate, call: Call) -> None:
        """Write a read of the clock: in Python a record is a column of the array of records."""
        address = call.args[0]
        if not (isinstance(address, Call) and address.name == "address_of" and isinstance(address.args[0], BufferLoad)):
            self.error(call, f"{call.name}: expected the address of a record")
        access = address.args[0]
        self.begin(stmt, *access.indices)
        column = bare(self.expr(access.indices[-1]))
        self.flush(f"{self.helper(call.name)}({self.buffers[access.buffer]}, {column})")

    def _argument(self, call: Call, param: Any, arg: Expr, sizes: Mapping[Var, Expr]) -> str:
        """Return the source of an argument: an integer, or a slice of an array in the shape and type of the callee's
        parameter."""
        if isinstance(param, Var):
            return bare(self.expr(arg))
        if not (isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], BufferLoad)):
            self.error(call, f"parameter {param.name}: expected the address of an element")
        access = arg.args[0]
        name = self.buffers.get(access.buffer)
        if name is None:
            self.error(access, f"buffer {access.buffer.name} is neither a parameter nor allocated here")
        offset = offset_of(access)
        shape = tuple(substitute(extent, sizes) for extent in param.shape)
        if is_whole(access.buffer, offset, param, shape):
            return f"{name}.reshape(())" if access.buffer in self.single else name
        flat = name if len(access.buffer.shape) == 1 or access.buffer.strides else f"{name}.reshape(-1)"
        count = span(param) if param.strides else product(shape)
        count = substitute(count, sizes)
        source, target = access.buffer.dtype.bytes, param.dtype.bytes
        if source != target:
            # Whole elements of the source, rounded up, hold the callee's array.
            size = binary("mul", count, IntImm(target))
            count = binary("floordiv", binary("add", size, IntImm(source - 1)), IntImm(source))
        start = bare(self.expr(offset))
        text = f"{flat}[{start} : {bare(self.expr(binary('add', offset, count)))}]"
        if storage(access.buffer.dtype) != storage(param.dtype):
            text = f"{text}.view(np.{storage(param.dtype)})"
        if len(shape) != 1 and not param.strides:
            extents = ", ".join(bare(self.expr(extent)) for extent in shape)
            text = f"{text}.reshape({f'({extents})' if extents else '()'})"
        part = self.parts.get(text)
        if part is None:
            part = self.parts[text] = self.names.fresh(param.name)
            self.before.append(f"{part} = {text}")
        return part

    def _block(self, block: Block) -> None:
        self.line(f"# {block.name}")
        for item in block.iters:
            self.begin(block, item.value)
            name = self.names.fresh(item.var.name)
            value = bare(self.expr(item.value))
            self.flush(f"{name} = {value}")
            self.variables[item.var] = name
        depth = self.depth
        if block.predicate is not None:
            self.begin(block, block.predicate)
            self.flush(f"if {bare(self.expr(block.predicate))}:")
            self.depth += 1
        if block.init is not None:
            first = [item for item in block.iters if item.kind == "reduction"]
            tests = [f"{self.variables[item.var]} == {self.expr(item.min)}" for item in first]
            self.line(f"if {' and '.join(tests) or 'True'}:")
            self.body(block.init)
        self.statement(block.body)
        self.depth = depth


def _calls(stmt: Stmt) -> Iterator[Evaluate | None]:
    """Yield the evaluated statements of ``stmt``, also below let statements; None for any other statement."""
    if isinstance(stmt, LetStmt):
        yield from _calls(stmt.body)
    elif isinstance(stmt, SeqStmt):
        for part in stmt.stmts:
            yield from _calls(part)
    else:
        yield stmt if isinstance(stmt, Evaluate) else None


def only_calls(func: PrimFunc) -> bool:
    """Return whether ``func`` only calls other functions, one after another, possibly below let statements."""
    calls = list(_calls(func.body))
    return bool(calls) and all(call is not None and called_names(call) for call in calls)


_STATEMENTS: dict[type[Node], Callable[[FunctionWriter, Any], None]] = {
    SeqStmt: FunctionWriter._sequence,
    For: FunctionWriter._for,
    BufferStore: FunctionWriter._store,
    LetStmt: FunctionWriter._let,
    IfThenElse: FunctionWriter._if,
    Allocate: FunctionWriter._allocate,
    Evaluate: FunctionWriter._evaluate,
    Block: FunctionWriter._block,
}
