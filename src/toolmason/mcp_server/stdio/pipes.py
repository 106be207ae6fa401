"""Reserve stdin and stdout for the protocol, and read and write lines with back-pressure."""

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

from toolmason._wire import LineSplitter, OversizedLine
from toolmason.mcp_client.transport.framing import MAX_LINE_BYTES

_CHUNK_BYTES: Final = 64 * 1024
_NO_LINE: Final = object()


@contextlib.contextmanager
def redirect_standard_streams() -> Generator[tuple[int, int]]:
    """Yield the file descriptors of the protocol. Anything that tools, children or libraries print goes to stderr."""
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


class LineReader(asyncio.Protocol):
    """Reader that passes each incoming line to a callback."""

    def __init__(self, on_line: Callable[[bytes | OversizedLine], None], on_end: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._splitter = LineSplitter(MAX_LINE_BYTES)
        self._transport: Any = None
        self._paused = self._at_end = False
        self._chunks: deque[bytes] = deque()
        self._lines: Iterator[bytes | OversizedLine] = iter(())

    @classmethod
    async def open(
        cls, descriptor: int, on_line: Callable[[bytes | OversizedLine], None], on_end: Callable[[], None]
    ) -> LineReader:
        """Start reading."""
        loop = asyncio.get_running_loop()
        reader = cls(on_line, on_end)
        stream = os.fdopen(os.dup(descriptor), "rb", 0)
        # The loop would treat `/dev/null` as a pipe, and notice too late that it cannot wait for it.
        is_pipe = stream.isatty() or not stat.S_ISCHR(os.fstat(descriptor).st_mode)
        try:
            if is_pipe:
                await loop.connect_read_pipe(lambda: reader, stream)
        except (ValueError, OSError):
            is_pipe = False
        if not is_pipe:
            stream.close()
            # A regular file is not a pipe: read it in a thread.
            threading.Thread(target=reader.read_file, args=(descriptor, loop), daemon=True).start()
        return reader

    def read_file(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        """Read a file to its end, in its own thread."""
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
        """Process lines until none is left or reading is paused, which may happen within a chunk."""
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
        """Pause reading."""
        if not self._paused:
            self._paused = True
            if self._transport is not None and not self._at_end:
                self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._at_end:
                self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._process_lines)

    def close(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.close()


class LineWriter(asyncio.Protocol):
    """Writer of whole lines, with back-pressure."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._descriptor = -1
        self.writable = asyncio.Event()
        self.writable.set()
        self.on_writable: Callable[[], None] = lambda: None
        """Called when the buffer has room again."""
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, descriptor: int) -> LineWriter:
        """Start writing."""
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
        """Record that the buffer is full."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Record that the buffer has room again."""
        self.writable.set()
        self.on_writable()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self.resume_writing()

    def write(self, line: bytes) -> None:
        """Write a line; it is buffered while the client does not read."""
        if self._transport is not None:
            self._transport.write(line + b"\n")
        else:
            os.write(self._descriptor, line + b"\n")

    async def close(self, seconds: float = 2.0) -> None:
        """Flush the buffer and close."""
        if self._transport is None:
            return
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)
