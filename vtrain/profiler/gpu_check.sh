#!/usr/bin/env bash
# Profiles one GPU and checks the profile on a dozen real training steps, in under eight minutes.
#
#   vtrain/profiler/gpu_check.sh OUT [cuda|cpu] [MINUTES] [CONFIGS]
#
# Writes OUT/profile (the profile), OUT/verify.json and OUT/verify.txt (predicted against
# measured), OUT/machine.txt (driver, clocks, versions). `cpu` tries the script itself.
set -euo pipefail
out=${1:?usage: gpu_check.sh OUT [cuda|cpu] [MINUTES] [CONFIGS]}
kind=${2:-cuda}
minutes=${3:-4}
configs=${4:-12}
mkdir -p "$out"
{
  date -u
  uname -a
  if [ "$kind" = cuda ]; then
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit --format=csv
  fi
} >"$out/machine.txt"
vtrain profile run --device "$kind" --out "$out/profile" --minutes "$minutes" --force |
  tee "$out/run.txt"
# What is left of eight minutes, less half a minute for the last configuration.
left=$(((450 - SECONDS) / 60)).$((((450 - SECONDS) % 60) * 10 / 60))
vtrain profile verify --profile "$out/profile" --configs "$configs" --seed 1 --repeats 5 \
  --minutes "$left" --json >"$out/verify.json"
python3 - "$out/verify.json" <<'PYTHON' | tee "$out/verify.txt"
import json
import sys

found = json.load(open(sys.argv[1], encoding="utf-8"))
for row in found["rows"]:
    print(
        f"{row['configuration']:44} measured {row['measured_s']:.4g} s  predicted "
        f"{row['predicted_s']:.4g} s  {100 * row['time_error']:+.1f} %  memory "
        f"{100 * row['memory_error']:+.1f} %"
    )
print(
    f"step time MAPE {100 * found['time_error_mape']:.1f} %, worst "
    f"{100 * found['time_error_worst']:.1f} %; memory {100 * found['memory_error_mape']:.1f} %, "
    f"worst {100 * found['memory_error_worst']:.1f} %; {found['profile']['gpu']}, torch "
    f"{found['profile']['torch']}"
)
PYTHON
