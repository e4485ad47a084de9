#pragma once

#include <sys/types.h>

#include <cstdint>

namespace macaw::cli {

// The cores that this process may use.
uint32_t CoresHere();

// Bytes that processes can take before the machine, or this process's control group, runs short.
uint64_t FreeMemory();

// Bytes that a process and all its descendants take, shared pages divided among those who map them.
// 0 for a process that is gone.
uint64_t MemoryOfTree(pid_t process);

}  // namespace macaw::cli
