# refused: strict, basic
import asyncio
asyncio.create_subprocess_shell("id")
