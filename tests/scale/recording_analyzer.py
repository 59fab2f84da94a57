"""Run as `python -m tests.scale.recording_analyzer`: an analyzer that keeps the delivered order."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from shuffledp.analyzer import core, server
from shuffledp.analyzer.release import Staging
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.messages.batch import BatchPart
from shuffledp.common.runtime.service import Service, main


def recorded_parts(state: Path) -> Path:
    """Return the folder of the parts as they were delivered, beside the analyzer's state."""
    return state.with_name("recorded-parts")


async def start(settings: AnalyzerSettings) -> Service:
    """Start an analyzer that records every part before it is stored."""
    folder = recorded_parts(settings.state_directory)
    folder.mkdir(exist_ok=True)

    class RecordingStaging(Staging):
        async def receive(
            self,
            part: BatchPart,
            chunks: AsyncIterator[bytes],
            ask_for_reports: Callable[[], Awaitable[None]] | None = None,
        ) -> None:
            await super().receive(part, _recorded(folder, part.part, chunks), ask_for_reports)

    core.Staging = RecordingStaging  # type: ignore[attr-defined]
    return await server.start(settings)


async def _recorded(folder: Path, part: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    content = b""
    async for chunk in chunks:
        content += chunk
        yield chunk
    unfinished = folder.with_name(f"part-{part}")
    unfinished.write_bytes(content)
    unfinished.replace(folder / str(part))


if __name__ == "__main__":
    main("analyzer", AnalyzerSettings, start)
