#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/robust/robust.h"
#include "core/random.h"

namespace macaw::algorithms {

// Bucketing: Karimireddy, He, Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via
// Bucketing", ICLR 2022, algorithm 1. A round's updates are put into buckets of s in a random
// order, and a robust rule judges the buckets' means instead of the updates. Honest means differ
// less than honest updates do, and f hostile clients are in f buckets at most.

// s, the parameter bucket_size; 1: no buckets.
size_t BucketSize(const Setup& setup);
// ⌈clients/s⌉: how many updates the rule judges where so many clients came.
uint64_t Buckets(const Setup& setup, uint64_t clients);

// The means of the buckets, each of s updates and the last one of those that are left. A mean is
// weighted where the updates are, and weighs as much as its updates together.
Arrived InBuckets(Arrived arrived, size_t size, RandomStream random);

// The rule with the parameter, its refusals and a remark.
Description WithBuckets(Description rule);

}  // namespace macaw::algorithms
