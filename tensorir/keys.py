"""Name the keys of the loop IR: attributes of functions, and annotations of loops and blocks.

Each is set by one part of the compiler and read by others, so its name and meaning are declared here, once. Users may
set any other key: it is printed, parsed and kept by passes, which do not interpret it.
"""

from __future__ import annotations

# -- attributes of functions ------------------------------------------------------------------------------------------

#: Number of buffer parameters, from the first on, that are inputs. Set by lowering.
NUM_INPUTS = "num_inputs"

#: Number of a model's inputs, the last ones, that are its constants. Set on ``main`` by ``PlanMemory``.
NUM_CONSTANTS = "num_constants"

#: Number of buffer parameters, after the inputs, that are results. Set by lowering and by ``create_prim_func``.
NUM_OUTPUTS = "num_outputs"

#: Number of buffer parameters, the last ones, that are scratch memory. Set by ``StorageRewrite`` and ``PlanMemory``.
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

#: The numbers of a function's buffers that are small although their symbolic sizes do not show it. Set by
#: ``MergeKernels`` for ``PrefetchPanels``.
SMALL_BUFFERS = "small_buffers"

#: The names of the kernels that a profiled ``main`` calls, in the order of their records. Set by ``ProfileCalls``.
PROFILED_CALLS = "profiled_calls"

#: The key of the kernel that an outline stands for, which distinguishes kernels with equal outlines.
KERNEL_KEY = "kernel_key"

#: For each variable of a kernel for any sizes, in order, the place (tensor, axis) of the dimension that a call passes
#: for it, or (tensor, axis, divisor) where it passes that dimension divided; (number,) where it is passed as a
#: constant, one of those after the tensors of a call; None where the variable is one of the model's dimensions.
#: Tensors are numbered from the first argument to the last result. Divided dimensions and constants are positive.
SIZES_FROM = "sizes_from"

#: The names of a function's variables that stand for the model's symbolic dimensions of those names, where no shape of
#: a call tells them. Lowering puts the dimensions in their place.
MODEL_SIZES = "model_sizes"

#: The names of the graph's operators that a kernel computes, in order of evaluation.
OPERATORS = "operators"

#: For each call of a kernel in a model's ``main``, in order of its text, a pair of the kernel's name and, for each of
#: the kernel's operators, its name in the graph (None: it has none).
CALLS = "calls"

#: For each call of a kernel in a model's ``main``, in order of its text, the name that the kernel had before it was
#: merged with others (None: it was not).
FORMULAS = "formulas"

#: The values in the arena of a model's ``main``. For each value: the number of its slot (0: none, its place is fixed)
#: and its offset there; its size in bytes; the numbers of the first and the last call of its live range, in order of
#: the text; and whether it is scratch memory of a single kernel.
VALUES = "values"

#: The prefix of ``schedule.<rule>.<field>``: a field of the plan that a schedule rule makes for the function, as in the
#: configuration of the same name, but for this function alone. Users set it, on a kernel or on the group that becomes
#: one; ``ScheduleKernels`` applies and removes it.
SCHEDULE = "schedule."

#: Whether the loops of a function stay as they are (:data:`MANUAL`) or are scheduled by passes (:data:`AUTO`). The
#: default of functions that users pass as loops is ``manual``; functions that the compiler makes have no such
#: attribute, and are scheduled. On a block of a manual function, ``auto`` selects its loops alone.
SCHEDULE_MODE = "schedule"

#: Values of :data:`SCHEDULE_MODE`.
MANUAL, AUTO = "manual", "auto"

#: Whether a handwritten function's indices are trusted: no access is guarded whose index may be outside of its buffer.
UNCHECKED_INDICES = "unchecked_indices"

#: Attributes that say where a function comes from. Like the names of variables they are for readers: comparisons of
#: functions ignore them.
ORIGIN_ATTRS = frozenset({OPERATORS, CALLS, FORMULAS, VALUES})

#: The instructions of users that a kernel calls, with their digests. Set by ``LowerTensorIntrin``.
TENSOR_INTRINS = "tensor_intrins"

#: What the checks of a kernel's accesses are about, by their number: kernel, access, dimension and buffer. Set by
#: ``CheckBounds``; code generators write them into the code.
CHECKED_ACCESSES = "checked_accesses"

# -- annotations of loops ---------------------------------------------------------------------------------------------

#: Whether the steps of a reduction may be reordered: a vector loop may then be a reduction.
REASSOCIATE = "reassociate"

#: Whether the remainder of a loop becomes separate code (``LoopPartition``, ``loop_remainders``).
SPECIALIZE_TAIL = "specialize_tail"

#: Whether a loop is never split: its body is large, and its conditions take less time than copies for the borders would
#: take to compile (``LoopPartition``).
KEEP_WHOLE = "keep_whole"

#: Number of products, adjacent in memory, that a loop adds to each lane by one instruction (``DotProduct``).
DOT_PRODUCT = "dot_product"

#: Whether the vectors that the steps of a loop store, whose elements are interleaved in memory, are stored as one
#: vector (``InterleaveStores``).
INTERLEAVE = "interleave"

#: Whether a loop iterates over the rows of a tile that is transposed in registers (``TransposeTiles``).
TRANSPOSE = "transpose"

#: Whether a loop is outlined: it becomes a separate function that is called in its place.
OUTLINE = "outline"

#: The condition under which a parallel loop runs on several threads. Set by ``ParallelizeLoop``.
PARALLEL_IF = "parallel_if"

#: Number of iterations of a parallel loop that a thread takes at once.
GRAIN = "grain"

#: Loops over places that the rows of a task read in part, as in causal attention (``SkipUnseen``): the number of places
#: after its own number that a row reads, the number of places in an iteration, and the blocks' variable of the row.
SEEN, SEEN_STEP, SEEN_ROW = "seen", "seen_step", "seen_row"

#: The name of the instruction that does what the loop does (:mod:`.tensor_intrins`), and the digest that it had.
TENSOR_INTRIN, TENSOR_INTRIN_DIGEST = "tensor_intrin", "tensor_intrin_digest"

# -- annotations of blocks --------------------------------------------------------------------------------------------

#: The lanes of the vectors in which a reduction keeps partial results.
PARTIAL_RESULTS = "partial_results"
