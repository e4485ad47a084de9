#pragma once

#include <cstddef>

#include "training/api/backend_choice.h"

namespace macaw::training {

// Where this test program's trainers of LibTorch work. The tests of eager_*_test.cc are linked into
// two programs: with torch_on_host.cc, and with torch_on_device.cc.
BackendChoice TorchChoice();

// The bytes of tensors there: counts from now on, and the most at once since then, beyond what
// there was. One thread at a time.
void CountTensorBytes();
size_t MostTensorBytes();

}  // namespace macaw::training
