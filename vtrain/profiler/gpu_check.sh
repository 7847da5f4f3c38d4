#!/usr/bin/env bash
# Profiles one GPU and checks the profile on a dozen real training steps, in under eight minutes.
#
#   vtrain/profiler/gpu_check.sh OUT [cuda|cpu] [MINUTES] [CONFIGS]
#
# Writes OUT/profile (the profile), OUT/verify.json and OUT/verify.txt (predicted against
# measured), OUT/machine.txt (driver, clocks, versions). `cpu` tries the script itself.
# MINUTES (4) bounds the measuring, CONFIGS (12) are the steps checked. Exit code 2: wrong usage or
# something is missing; 1: no step could be checked.
set -euo pipefail
usage="usage: gpu_check.sh OUT [cuda|cpu] [MINUTES, 1 to 6] [CONFIGS]"
fail() {
  echo "error: $1" >&2
  exit "${2:-2}"
}
if [ $# -lt 1 ] || [ $# -gt 4 ]; then fail "$# arguments; $usage"; fi
out=$1
kind=${2:-cuda}
minutes=${3:-4}
configs=${4:-12}
case "$kind" in
cuda | cpu) ;;
*) fail "device '$kind' is neither cuda nor cpu; $usage" ;;
esac
[[ "$minutes" =~ ^([1-5]([.][0-9]+)?|6)$ ]] || fail "MINUTES '$minutes' is not from 1 to 6; $usage"
[[ "$configs" =~ ^[1-9][0-9]*$ ]] || fail "CONFIGS '$configs' is no whole number above 0; $usage"
for tool in vtrain python3; do
  command -v "$tool" >/dev/null ||
    fail "$tool is not on the PATH; activate the environment that has vtrain and torch"
done
if [ "$kind" = cuda ] && ! command -v nvidia-smi >/dev/null; then
  fail "nvidia-smi is not on the PATH, so there is no NVIDIA driver; on a CPU: gpu_check.sh $out cpu"
fi
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
left_s=$((450 - SECONDS))
if [ "$left_s" -lt 30 ]; then
  fail "measuring took $SECONDS s, nothing is left of eight minutes; fewer MINUTES than $minutes" 1
fi
vtrain profile verify --profile "$out/profile" --configs "$configs" --seed 1 --repeats 5 \
  --minutes "$((left_s / 60)).$((left_s % 60 * 10 / 60))" --json >"$out/verify.json"
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
for kind, entries in (("skipped", found["skipped"]), ("warning", found["warnings"])):
    for entry in entries:
        print(f"{kind}: {entry}")
if not found["rows"]:
    sys.exit("error: no configuration ran, so nothing was checked")
print(
    f"step time MAPE {100 * found['time_error_mape']:.1f} %, worst "
    f"{100 * found['time_error_worst']:.1f} %; memory {100 * found['memory_error_mape']:.1f} %, "
    f"worst {100 * found['memory_error_worst']:.1f} %; {found['profile']['gpu']}, torch "
    f"{found['profile']['torch']}"
)
PYTHON
