"""Run with: ringfence run examples/hello.py"""
import os
import platform

print(f"Hello from Python {platform.python_version()} in a sandbox, pid {os.getpid()}!")
{"answer": sum(range(10)) - 3, "home": os.environ["HOME"]}
