#pragma once

#include <cstdint>

#include "training/device/ops.h"

namespace macaw::training::ondevice {

// How the product of an m × k and a k × n matrix is divided.
GemmShape ShapeOfProduct(uint64_t m, uint64_t n, uint64_t k);

// What it costs: the instructions of 256 threads, roughly.
uint64_t CostOf(const GemmShape& shape, uint64_t m, uint64_t n, uint64_t k);

}  // namespace macaw::training::ondevice
