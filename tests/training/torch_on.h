#pragma once

#include "training/api/backend_choice.h"

namespace macaw::training {

// Where this test program's trainers of LibTorch work. The tests of eager_*_test.cc are linked into
// two programs: with torch_on_host.cc, and with torch_on_device.cc.
BackendChoice TorchChoice();

}  // namespace macaw::training
