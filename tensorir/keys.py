"""Name the keys of the loop IR: attributes of functions, and annotations of loops and blocks.

Each is set by one part of the compiler and read by others, so the name and what it stands for are here, once. Users may
set any other key: it is printed, parsed, kept by passes, and means nothing to them.
"""

from __future__ import annotations

# -- attributes of functions ------------------------------------------------------------------------------------------

#: How many buffer parameters, from the first on, are inputs. Set by lowering.
NUM_INPUTS = "num_inputs"

#: How many of a model's inputs, the last ones, are its constants. Set on ``main`` by ``PlanMemory``.
NUM_CONSTANTS = "num_constants"

#: How many buffer parameters, behind the inputs, are results. Set by lowering and by ``create_prim_func``.
NUM_OUTPUTS = "num_outputs"

#: How many buffer parameters, the last ones, are scratch memory. Set by ``StorageRewrite`` and ``PlanMemory``.
NUM_WORKSPACES = "num_workspaces"

#: The bytes of the memory that a model's ``main`` needs for its intermediate values; may depend on its variables.
ARENA_BYTES = "arena_bytes"

#: The names of a model's parameters, in order. Set on ``main`` by ``PlanMemory``.
PARAMETERS = "parameters"

#: The kind of the fused group that a kernel was lowered from: ``injective``, ``contraction``, ...
KIND = "kind"

#: Whether the buffers of a function may overlap.
MAY_ALIAS = "may_alias"

#: Whether LLVM runs all of its passes on a function, its vectorizers included.
LLVM_VECTORIZE = "llvm_vectorize"

#: The numbers of the arguments that a kernel's result may overwrite. Set before kernels are scheduled, read where
#: memory is planned and code is generated.
OVERWRITES = "overwrites"

#: The numbers of a function's buffers that are small, although their sizes do not say so. Set by ``MergeKernels`` for
#: ``PrefetchPanels``.
SMALL_BUFFERS = "small_buffers"

#: The names of the kernels that a profiled ``main`` calls, in the order of their records. Set by ``ProfileCalls``.
PROFILED_CALLS = "profiled_calls"

#: The key of the kernel that an outline stands for, which tells apart those that look alike.
KERNEL_KEY = "kernel_key"

#: For each variable of a kernel for any sizes, in order, the place (tensor, axis) of the dimension that a call passes
#: for it, or (tensor, axis, divisor) where it passes that dimension divided; (number,) where it is passed as a
#: constant, one of those behind the tensors of a call; None where the variable is one of the model's dimensions.
#: Tensors are numbered from the first argument to the last result. Divided dimensions and constants are positive.
SIZES_FROM = "sizes_from"

#: The names of the graph's operators that a kernel computes, in order of evaluation.
OPERATORS = "operators"

#: For each call of a kernel in a model's ``main``, in order of its text, a pair of the kernel's name and, for each of
#: the kernel's operators, what the graph calls it there (None: nothing).
CALLS = "calls"

#: For each call of a kernel in a model's ``main``, in order of its text, the name that the kernel had before it became
#: one with others (None: it did not).
FORMULAS = "formulas"

#: What lies in the arena of a model's ``main``. For each value: the number of the slot in which it lies (0: none, its
#: place is fixed) and the offset there; its size in bytes; the numbers of the first and the last call during which it
#: has that memory, in order of the text; and whether it is scratch memory of the one kernel.
VALUES = "values"

#: What begins ``schedule.<rule>.<field>``: a field of the plan that a schedule rule makes for the function, as in the
#: configuration of the same name, but for this function alone. Users set it, on a kernel or on the group that becomes
#: one; ``ScheduleKernels`` follows it and takes it off.
SCHEDULE = "schedule."

#: Attributes that say where a function comes from. Like the names of variables they are for people: they do not count
#: when functions are compared.
ORIGIN_ATTRS = frozenset({OPERATORS, CALLS, FORMULAS, VALUES})

# -- annotations of loops ---------------------------------------------------------------------------------------------

#: Whether iterations may be added up in another order: a vector loop may then be a reduction.
REASSOCIATE = "reassociate"

#: Whether the last, short part of a loop becomes code of its own (``LoopPartition``, ``loop_remainders``).
SPECIALIZE_TAIL = "specialize_tail"

#: Whether the tiles at a border become loops, not unrolled copies (``LoopPartition``).
ROLL_TAIL = "roll_tail"

#: How many products a loop adds to a vector by one instruction, each the next in memory (``DotProduct``).
DOT_PRODUCT = "dot_product"

#: Whether the vectors that the steps of a loop write, whose elements take turns in memory, are written as one
#: (``InterleaveStores``).
INTERLEAVE = "interleave"

#: Whether formulas are chosen by the variable of an unrolled loop (``Choose``), so that it stays unrolled where others
#: become loops again (:data:`ROLL_TAIL`).
CHOOSES = "chooses"

#: Whether a loop goes over the rows of a tile whose rows and columns are exchanged in registers (``TransposeTiles``).
TRANSPOSE = "transpose"

#: Whether a loop becomes a function of its own, which is called in its place.
OUTLINE = "outline"

#: The condition under which a parallel loop runs on several threads. Set by ``ParallelizeLoop``.
PARALLEL_IF = "parallel_if"

#: How many iterations of a parallel loop a thread takes at once.
GRAIN = "grain"

#: Loops over places that the rows of a task see in part (``SkipUnseen``): how many places after its own number a row
#: sees, how many places an iteration takes, and which variable of the blocks inside is the row.
SEEN, SEEN_STEP, SEEN_ROW = "seen", "seen_step", "seen_row"

# -- annotations of blocks --------------------------------------------------------------------------------------------

#: The lanes of the vectors in which a reduction keeps partial results.
PARTIAL_RESULTS = "partial_results"
