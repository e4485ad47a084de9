#pragma once

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace macaw {

// Proportional set size of this process in bytes: private pages plus its share of shared pages. A
// data file that several processes map therefore counts once in their sum. Reads
// /proc/self/smaps_rollup (about 1 ms).
absl::StatusOr<uint64_t> ProportionalSetSize();
// The same of another process of this user.
absl::StatusOr<uint64_t> ProportionalSetSize(pid_t process);

// Makes glibc keep freed memory instead of returning it to the system. Call it once, at the start
// of main(). LibTorch allocates and frees the same large activations in every training step, and
// mapping them again costs more than the arithmetic of a small step.
void KeepFreedMemory();
// The same of 4 MiB at the end of each heap, for a small program that moves large blobs: gRPC
// allocates and frees the megabytes that are on the way, and with TLS a transfer takes far more
// processor time where each of them comes from the system. Thread-safe; calls after the first do
// nothing.
void KeepFreedMegabytes();

}  // namespace macaw
