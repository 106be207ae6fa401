"""The standard streams of this process → the wire, and nothing but the wire.

Lives here: taking file descriptors 0 and 1 away from everybody else, lines in, bytes out, back-pressure both ways.
Not here: what a line says (`stdio`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from typing_extensions import override

from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES

_CHUNK_BYTES: Final = 64 * 1024
_NO_LINE: Final = object()


@contextlib.contextmanager
def redirect_standard_streams() -> Generator[tuple[int, int]]:
    """Yield the wire, as two file descriptors; whatever a tool, a child or a library prints goes to standard error."""
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    null_descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_descriptor, 0)
    os.dup2(2, 1)
    os.close(null_descriptor)
    try:
        yield wire_in, wire_out
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        os.close(wire_in)
        os.close(wire_out)


class SkippingLineSplitter:
    """Bytes → lines, each byte looked at once; a line over the cap is told of, and skipped to its end."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self.max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._buffered_bytes = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> Generator[bytes | None]:
        """Yield the lines that a chunk completes; `None` for one that is too long."""
        first, *rest = chunk.split(b"\n")
        for following in rest:
            if not self._skipping:
                line = b"".join((*self._parts, first)) if self._parts else first
                yield line if len(line) <= self.max_bytes else None
            self._parts, self._buffered_bytes, self._skipping = [], 0, False
            first = following
        if first and not self._skipping:
            self._parts.append(first)
            self._buffered_bytes += len(first)
            if self._buffered_bytes > self.max_bytes:
                self._parts, self._skipping = [], True
                yield None


class LineReader(asyncio.Protocol):
    """What comes in, line by line, to a callback."""

    def __init__(self, on_line: Callable[[bytes | None], None], on_end: Callable[[], None]) -> None:
        self._on_line, self._on_end, self._splitter = on_line, on_end, SkippingLineSplitter()
        self._transport: Any = None
        self._paused = self._at_end = False
        self._chunks: deque[bytes] = deque()
        self._lines: Iterator[bytes | None] = iter(())

    @classmethod
    async def open(
        cls, descriptor: int, on_line: Callable[[bytes | None], None], on_end: Callable[[], None]
    ) -> LineReader:
        """Begin to read."""
        loop, reader = asyncio.get_running_loop(), cls(on_line, on_end)
        stream = os.fdopen(os.dup(descriptor), "rb", 0)
        # The loop would take `/dev/null` for a pipe, and find out too late that it cannot wait for it.
        is_pipe = stream.isatty() or not stat.S_ISCHR(os.fstat(descriptor).st_mode)
        try:
            if is_pipe:
                await loop.connect_read_pipe(lambda: reader, stream)
        except (ValueError, OSError):
            is_pipe = False
        if not is_pipe:
            stream.close()
            # A file is no pipe; whoever feeds us one is served all the same.
            threading.Thread(target=reader.read_file, args=(descriptor, loop), daemon=True).start()
        return reader

    def read_file(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        """Read a file to its end, in a thread of its own."""
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            loop.call_soon_threadsafe(self.data_received, chunk)
        loop.call_soon_threadsafe(self.connection_lost, None)

    @override
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._process_lines()

    def _process_lines(self) -> None:
        """Hand on line after line, until there is none, or somebody has had enough: also within a chunk."""
        while not self._paused:
            line: Any = next(self._lines, _NO_LINE)
            if line is not _NO_LINE:
                self._on_line(line)
            elif self._chunks:
                self._lines = self._splitter.feed(self._chunks.popleft())
            else:
                break
        if self._at_end and not self._paused:
            self._at_end = False
            self._on_end()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._at_end = True
        self._process_lines()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._paused:
            self._paused = True
            if self._transport is not None and not self._at_end:
                self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._at_end:
                self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._process_lines)

    def close(self) -> None:
        """Read never again."""
        if self._transport is not None:
            self._transport.close()


class LineWriter(asyncio.Protocol):
    """What goes out, whole lines, as fast as it is taken."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._descriptor = -1
        self.writable = asyncio.Event()
        self.writable.set()
        self.on_writable: Callable[[], None] = lambda: None
        """Called when there is room again."""
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, descriptor: int) -> LineWriter:
        """Begin to write."""
        writer = cls()
        writer._descriptor = descriptor
        stream = os.fdopen(os.dup(descriptor), "wb", 0)
        try:
            await asyncio.get_running_loop().connect_write_pipe(lambda: writer, stream)
        except (ValueError, OSError):
            stream.close()
            writer._transport = None
        return writer

    @override
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        """Take note that nobody reads at the moment."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Take note that there is room again."""
        self.writable.set()
        self.on_writable()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self.resume_writing()

    def write(self, line: bytes) -> None:
        """Write a line; it waits in memory while nobody reads."""
        if self._transport is not None:
            self._transport.write(line + b"\n")
        else:
            os.write(self._descriptor, line + b"\n")

    async def close(self, seconds: float = 2.0) -> None:
        """Write what is left, and close."""
        if self._transport is None:
            return
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)
