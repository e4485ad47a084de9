#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace macaw {

// The processor time that the control groups of a process allow, in cores; 0: without a limit.
// `membership`: what /proc/PID/cgroup says. `root`: where the groups are mounted, /sys/fs/cgroup.
// Knows version 2 (cpu.max) and version 1 (cpu.cfs_quota_us); the smallest limit of a group and of
// those around it counts. A container may see its own group as the root.
double CoresOfCgroups(absl::string_view membership, const std::string& root);

// The cores on which the calling thread may run.
uint32_t AllowedCores();

// The smaller of the two, at least 1; part of a core counts as one. `quota`: 0 is without a limit.
uint32_t UsableCores(uint32_t allowed, double quota);

// The cores on which this process may run (AllowedCores), or those whose time its control
// groups allow, if that is less. So a container with two of 64 cores starts two threads and not 64.
// Looked up once. Thread-safe.
uint32_t UsableCores();

}  // namespace macaw
