#!/usr/bin/env bash
# Generates Python and Go messages from contracts/proto into the folder given (default: contracts).
# Needs grpcio-tools in the Python on PATH and protoc-gen-go on PATH.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$here}
mkdir -p "$out/python" "$out/go/spillwayv1"
cd "$here/proto"
python -m grpc_tools.protoc -I. \
  --python_out="$out/python" --pyi_out="$out/python" \
  --go_out="$out/go" --go_opt=module=spillway.dev/contracts \
  spillway/v1/*.proto
