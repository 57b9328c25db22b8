#!/usr/bin/env bash
# Run with: ringfence run examples/hello.sh
echo "Hello from bash ${BASH_VERSION%%(*} as $(id -un) on $(hostname)!"
echo "kept" > "$RINGFENCE_OUTPUT_DIR/greeting.txt"
