#!/bin/sh
# arm64_run.sh PROGRAM [ARGUMENTS]: runs an arm64 program, and the arm64 programs that it starts, on another processor.
# The kernel starts qemu for them (binfmt_misc). Where it was not told to, it is told here, for this program alone: in a
# user namespace of its own, which needs no root, but Linux 6.7 and a container that permits namespaces.
set -eu
here=$(readlink -f "$0")
QEMU_LD_PREFIX=${here%/cmake/*}/.deps/arm64  # where qemu finds the loader and the libraries
export QEMU_LD_PREFIX

if [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then exec "$@"; fi
if [ -z "${MACAW_ARM64_NAMESPACE:-}" ]; then
  MACAW_ARM64_NAMESPACE=1 exec unshare --user --map-root-user --mount "$here" "$@"
fi
unset MACAW_ARM64_NAMESPACE
# The first twenty bytes of an arm64 program, and which of their bits count.
elf='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
  printf '%s' ":qemu-aarch64:M::$elf:$mask:$(command -v qemu-aarch64):P" >/proc/sys/fs/binfmt_misc/register || {
  echo "cannot tell this kernel to start arm64 programs with qemu (it needs Linux 6.7 and user namespaces);" \
    "the package qemu-user-static tells it on the host" >&2
  exit 1
}
exec "$@"
