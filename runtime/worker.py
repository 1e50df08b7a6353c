"""Compile kernels in a worker process. Requests and answers are bytes; nothing is pickled.

A request holds a scheduled kernel as records (``tensorir.encoding``), the target and the settings of the build; the
answer is an entry of :mod:`.stored_kernels`. Both have the format of files (:mod:`.packed_file`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import sys
import threading
import time
from typing import Any, BinaryIO

import numpy as np

from tilewright.codegen.forks import outline
from tilewright.graphir.expr import GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.passes.build_config import BUILD
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.runtime.frames import with_frame_memory
from tilewright.runtime.kernel_cache import ANY_NAME, compile_kernel
from tilewright.runtime.packed_file import pack, unpack
from tilewright.runtime.stored_kernels import StoredKernel
from tilewright.runtime.target_facts import target_facts
from tilewright.tensorir.encoding import Encoded, encode
from tilewright.tensorir.errors import EncodingError
from tilewright.tensorir.keys import SCHEDULE
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

_REQUEST = b"tilewright kernel request 1\n"
_ANSWER = b"tilewright kernel answer 1\n"
_LENGTH = struct.Struct("<Q")

#: A process that is idle for this many seconds ends.
_IDLE_SECONDS = 60.0


def encode_request(kernel: Encoded, target: Target, context: PassContext) -> bytes | None:
    """Encode the request to make ``kernel``; None if the settings cannot be encoded."""
    config = {
        key: dataclasses.asdict(value)
        for key, value in context.config.items()
        # The kernel is scheduled already, and Tilewright's passes read no options of others.
        if key != BUILD and not key.startswith(SCHEDULE) and type(value).__module__.startswith("tilewright.")
    }
    try:
        data = {
            "target": [
                target.kind,
                target.mcpu if not target.is_host else None,
                target.mattr,
                target.mtriple,
                target.num_threads,
            ],
            "facts": target_facts(target),
            "context": [context.opt_level, list(context.required_pass), list(context.disabled_pass), config],
            "kernel": [kernel.names, kernel.origins],
        }
        json.dumps(data)
    except TypeError:  # an option is not plain data
        return None
    return _packed(_REQUEST, data, [kernel.records.encode("utf-8", "surrogatepass")])


def answer_request(request: bytes) -> bytes:
    """Run the passes and LLVM on the kernel of a request.

    Raises:
        EncodingError: this process is on another machine than the one that the kernel is for.
        Exception: any error of a pass.
    """
    return with_frame_memory(_answer, request)


def _answer(request: bytes) -> bytes:
    data, (records,) = unpack(np.frombuffer(request, np.uint8), _REQUEST)
    kind, mcpu, mattr, mtriple, num_threads = data["target"]
    if mtriple == Target(kind).mtriple:
        mtriple = None
    target = Target(kind, mcpu=mcpu, mattr=mattr, mtriple=mtriple, num_threads=num_threads)
    if target_facts(target) != data["facts"]:
        raise EncodingError(f"expected a machine with {data['facts']}, found {target_facts(target)}")
    names, origins = data["kernel"]
    kernel = Encoded(records.tobytes().decode("utf-8", "surrogatepass"), tuple(names), origins).decode()
    level, required, disabled, config = data["context"]
    name = GlobalVar(kernel.name)
    with PassContext(level, required, disabled, config=config) as context, target:
        lowered = tensor_pipeline(target)(IRModule({name: kernel}), context)[kernel.name]
    assert isinstance(lowered, PrimFunc)
    code = compile_kernel(lowered, target).object_bytes
    texts = encode(outline(lowered)), encode(lowered)
    made = StoredKernel(tuple(names), *texts, tuple(context.remarks), ANY_NAME, code)
    answer, arrays = made.encode()
    return _packed(_ANSWER, answer, [array.tobytes() for array in arrays])


def decode_answer(answer: bytes) -> StoredKernel:
    """Decode the kernel of an answer.

    Raises:
        EncodingError: ``answer`` is not an answer.
    """
    return StoredKernel.decode(unpack(np.frombuffer(answer, np.uint8), _ANSWER))


def _packed(magic: bytes, data: Any, parts: list[bytes]) -> bytes:
    found: list[bytes] = []
    pack(lambda part: found.append(bytes(part)), magic, data, [np.frombuffer(part, np.uint8) for part in parts])
    return b"".join(found)


def write_message(stream: BinaryIO, message: bytes) -> None:
    """Write a message with its length."""
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def read_message(stream: BinaryIO) -> bytes | None:
    """Read the next message; None at the end of the stream."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(length)[0]
    message = stream.read(size)
    return message if len(message) == size else None


def serve() -> None:
    """Answer requests on standard input with messages on standard output, until the input ends or the process has been
    idle for :data:`_IDLE_SECONDS`. The answer to a request that fails is an empty message."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output of the process must not come between the answers
    asked = time.monotonic()
    busy = threading.Event()

    def end_when_idle() -> None:
        while True:
            time.sleep(_IDLE_SECONDS / 4)
            if not busy.is_set() and time.monotonic() - asked > _IDLE_SECONDS:
                os._exit(0)

    threading.Thread(target=end_when_idle, daemon=True).start()
    write_message(answers, b"")  # tells that this process is ready
    while (request := read_message(requests)) is not None:
        busy.set()
        try:
            answer = answer_request(request)
        except Exception:  # the other process makes the kernel itself and gets the same error
            answer = b""
        try:
            write_message(answers, answer)
        except OSError:  # the other process has closed the pipe
            return
        asked = time.monotonic()
        busy.clear()
